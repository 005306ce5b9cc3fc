package incidents

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// phpMyAdmin is phpMyAdmin on a MariaDB of its own, as a user who may do everything in one database.
func phpMyAdmin(ctx context.Context, dir string) (*application, error) {
	number, err := port()
	if err != nil {
		return nil, err
	}
	a := &application{host: "127.0.0.1:" + number, signIn: []Action{
		{Goto: "/index.php"}, {Fill: &Fill{"#input_username", "ops"}}, {Fill: &Fill{"#input_password", "secret-ops"}},
		{Press: "Enter"}, {See: "General settings"},
	}}
	root, socket := installedReal("phpmyadmin/root"), filepath.Join(dir, "socket")
	env := append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(root, "usr/lib/x86_64-linux-gnu"), "TMPDIR="+dir,
		"PHPMYADMIN_CONFIG="+filepath.Join(dir, "config.inc.php"))
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(root, name), args...)
		cmd.Env = env
		return cmd
	}
	if err := os.CopyFS(filepath.Join(dir, "data"), os.DirFS(installedReal("phpmyadmin/data"))); err != nil {
		return nil, err
	}
	if err := a.run(command("usr/sbin/mariadbd", "--no-defaults", "--user=root", "--datadir="+filepath.Join(dir, "data"), "--socket="+socket,
		"--skip-networking", "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M", "--tmpdir="+dir,
		"--lc-messages-dir="+filepath.Join(root, "usr/share/mysql"), "--character-sets-dir="+filepath.Join(root, "usr/share/mysql/charsets"))); err != nil {
		return a, err
	}
	query := func(statements string) (string, error) {
		out, err := command("usr/bin/mariadb", "--no-defaults", "-S", socket, "-u", "root", "-N", "-e", statements).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		return string(out), nil
	}
	if err := a.until(ctx, func() error { _, err := query("SELECT 1"); return err }); err != nil {
		return a, err
	}
	if _, err := query(`CREATE DATABASE shop; USE shop;
CREATE TABLE customers (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(80), city VARCHAR(80));
INSERT INTO customers (name, city) VALUES ('Ada', 'London'), ('Bo', 'Oslo'), ('Cy', 'Rome');
CREATE TABLE numbers (next INT); INSERT INTO numbers VALUES (1);
DELIMITER //
CREATE FUNCTION take_number() RETURNS INT MODIFIES SQL DATA BEGIN UPDATE numbers SET next = next + 1; RETURN (SELECT next FROM numbers); END//
DELIMITER ;
CREATE USER ops@localhost IDENTIFIED BY 'secret-ops'; GRANT ALL ON shop.* TO ops@localhost;`); err != nil {
		return a, err
	}
	ini := "extension_dir=" + filepath.Join(root, "usr/lib/php/20220829") + "\ninclude_path=.:" + filepath.Join(root, "usr/share/php") + "\nmysqli.default_socket=" + socket + "\nsession.save_path=" + dir + "\n"
	for _, name := range []string{"mysqlnd", "ctype", "iconv", "mbstring", "mysqli", "tokenizer", "xml", "dom", "simplexml", "posix", "fileinfo"} {
		ini += "extension=" + name + "\n"
	}
	config := `<?php
$cfg['blowfish_secret'] = '0123456789abcdef0123456789abcdef';
$cfg['Servers'][1] = ['auth_type' => 'cookie', 'host' => 'localhost', 'socket' => '` + socket + `', 'connect_type' => 'socket', 'AllowNoPassword' => false];
`
	for name, text := range map[string]string{"php.ini": ini, "config.inc.php": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return a, err
		}
	}
	if err := a.run(command("usr/bin/php8.2", "-n", "-c", filepath.Join(dir, "php.ini"), "-S", a.host, "-t", filepath.Join(root, "usr/share/phpmyadmin"))); err != nil {
		return a, err
	}
	if err := a.until(ctx, func() error {
		resp, err := http.Get("http://" + a.host + "/robots.txt")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}); err != nil {
		return a, err
	}
	a.state = func(context.Context) (map[string]string, error) {
		all := map[string]string{}
		tables, err := query("SHOW TABLES FROM shop")
		if err != nil {
			return nil, err
		}
		for table := range strings.FieldsSeq(tables) {
			for what, statement := range map[string]string{"table ": "SHOW CREATE TABLE shop.", "row of ": "SELECT * FROM shop."} {
				out, err := query(statement + table)
				if err != nil {
					return nil, err
				}
				if what == "table " {
					// The number of the next row is no part of what the table is.
					before, after, _ := strings.Cut(out, " AUTO_INCREMENT=")
					_, after, _ = strings.Cut(after, " ")
					all[what+table] = before + " " + after
					continue
				}
				for row := range strings.Lines(out) {
					id, _, _ := strings.Cut(row, "\t")
					if table == "numbers" {
						id = ""
					}
					all[what+table+" "+strings.TrimSpace(id)] = row
				}
			}
		}
		all["the user's rights"], err = query("SHOW GRANTS FOR ops@localhost")
		return all, err
	}
	return a, nil
}
