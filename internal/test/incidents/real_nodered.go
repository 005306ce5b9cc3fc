package incidents

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// nodeRED is the editor of a Node-RED with one flow, which writes orders into a book.
func nodeRED(ctx context.Context, dir string) (*application, error) {
	number, err := port()
	if err != nil {
		return nil, err
	}
	a := &application{host: "127.0.0.1:" + number, signIn: []Action{
		{Goto: "/"}, {See: "Username:"}, {Fill: &Fill{"#node-dialog-login-username", "ops"}}, {Fill: &Fill{"#node-dialog-login-password", "secret-ops"}},
		{Press: "Enter"}, {See: "Heating"},
	}}
	book := filepath.Join(dir, "book")
	flows := []map[string]any{
		{"id": "f1", "type": "tab", "label": "Heating"},
		{"id": "n1", "type": "inject", "z": "f1", "name": "order", "props": []any{map[string]any{"p": "payload"}}, "payload": "order", "payloadType": "str", "topic": "", "repeat": "", "crontab": "", "once": false, "onceDelay": 0.1, "x": 200, "y": 100, "wires": []any{[]any{"n2", "n3"}}},
		{"id": "n2", "type": "file", "z": "f1", "name": "book", "filename": book, "filenameType": "str", "appendNewline": true, "overwriteFile": "false", "createDir": false, "encoding": "none", "x": 450, "y": 100, "wires": []any{[]any{}}},
		{"id": "n3", "type": "debug", "z": "f1", "name": "seen", "active": true, "tosidebar": true, "console": false, "tostatus": false, "complete": "payload", "targetType": "msg", "statusVal": "", "statusType": "auto", "x": 450, "y": 200, "wires": []any{}},
	}
	kept, err := json.Marshal(flows)
	if err != nil {
		return nil, err
	}
	const settings = `module.exports = {
	uiHost: '127.0.0.1', flowFile: 'flows.json', credentialSecret: 'x', telemetry: { enabled: false }, runtimeState: { enabled: true },
	adminAuth: { type: 'credentials', users: [{ username: 'ops', password: require('bcryptjs').hashSync('secret-ops', 4), permissions: '*' }] },
	editorTheme: { tours: false, palette: { catalogues: [] } },
}`
	for name, text := range map[string][]byte{"flows.json": kept, "settings.js": []byte(settings), "book": nil} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	modules := installedReal("node-red/node_modules")
	cmd := exec.Command("node", filepath.Join(modules, "node-red/red.js"), "--userDir", dir, "--settings", filepath.Join(dir, "settings.js"), "--port", number)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	if err := a.run(cmd); err != nil {
		return a, err
	}
	var signedIn struct {
		Token string `json:"access_token"`
	}
	if err := a.until(ctx, func() error {
		resp, err := http.PostForm("http://"+a.host+"/auth/token", url.Values{
			"client_id": {"node-red-admin"}, "grant_type": {"password"}, "scope": {"*"}, "username": {"ops"}, "password": {"secret-ops"},
		})
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		return json.NewDecoder(resp.Body).Decode(&signedIn)
	}); err != nil {
		return a, err
	}
	a.state = func(ctx context.Context) (map[string]string, error) {
		all := map[string]string{}
		for _, path := range []string{"/flows/state", "/nodes", "/library/local/flows/"} {
			var answer json.RawMessage
			if err := a.ask(ctx, "GET", path, "Bearer "+signedIn.Token, nil, &answer); err != nil {
				return nil, err
			}
			all[path] = string(answer)
		}
		var nodes []map[string]any
		if err := a.ask(ctx, "GET", "/flows", "Bearer "+signedIn.Token, nil, &nodes); err != nil {
			return nil, err
		}
		for _, n := range nodes {
			b, err := json.Marshal(n)
			if err != nil {
				return nil, err
			}
			all["node "+n["id"].(string)] = string(b)
		}
		orders, err := os.ReadFile(book)
		if err != nil {
			return nil, err
		}
		all["orders in the book"] = strings.TrimSpace(string(orders))
		return all, nil
	}
	return a, nil
}
