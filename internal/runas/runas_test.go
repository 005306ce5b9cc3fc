package runas

import (
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// modeVar makes the test binary say what Check says.
const modeVar = "LEASEHOLD_RUNAS_TEST_CHECK"

func TestMain(m *testing.M) {
	if os.Getenv(modeVar) != "" {
		if err := Check(); err != nil {
			os.Stdout.WriteString(err.Error())
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestFind(t *testing.T) {
	known, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"nobody":                      "nobody (uid " + known.Uid + ", gid " + known.Gid + ")",
		known.Uid:                     "nobody (uid " + known.Uid + ", gid " + known.Gid + ")",
		known.Uid + ":12":             "nobody (uid " + known.Uid + ", gid 12)",
		"54321:54322":                 "uid 54321, gid 54322",
		"54321":                       "no user with uid 54321",
		"no-such-user-here":           `no user "no-such-user-here"`,
		"":                            `no user ""`,
		"root":                        "root is uid 0",
		"0":                           "0 is uid 0",
		"0:5":                         "0:5 is uid 0",
		"54321:0":                     "has gid 0",
		"54321:":                      "uid[:gid] in numbers",
		"54321:users":                 "uid[:gid] in numbers",
		"4294967295:5":                "no id", // to the kernel: leave the user as it is
		"5:4294967295":                "no id",
		"4294967296:5":                "uid[:gid] in numbers",
		"-1:5":                        `no user "-1:5"`,
		" 54321:5":                    `no user " 54321:5"`,
		strings.Repeat("9", 60) + ":": "uid[:gid] in numbers",
	} {
		got, err := Find(text)
		said := got.String()
		if err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, want) {
			t.Errorf("%q: %s, want %s", text, said, want)
		}
	}
}

// A process that is not root is told what it would need.
func TestCheck(t *testing.T) {
	for uid, want := range map[uint32]string{
		0:     "",
		54321: "to run programs as another user the sidecar has to be root, or to have CAP_SETUID, CAP_SETGID, CAP_CHOWN, CAP_FOWNER, CAP_DAC_OVERRIDE, CAP_KILL, CAP_SYS_PTRACE too: it is uid 54321 without that",
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Dir, cmd.Env = "/", []string{modeVar + "=1"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("uid %d: %v, %s", uid, err, out)
		}
	}
}

// What may be a secret, or is the sidecar's own, is not passed on.
func TestEnvironment(t *testing.T) {
	given := []string{
		"PATH=/bin", "LANG=de_DE.UTF-8", "LC_TIME=C", "TZ=Europe/Berlin", "DISPLAY=:0", "https_proxy=http://p:1", "CHROME_DEVEL_SANDBOX=/x",
		"HOME=/root", "USER=root", "XDG_CONFIG_HOME=/root/.config", "XDG_RUNTIME_DIR=/run/user/0", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus",
		"AWS_SECRET_ACCESS_KEY=s", "LEASEHOLD_TOKEN=s", "LD_PRELOAD=/x.so", "SSH_AUTH_SOCK=/x", "odd",
	}
	got := User{UID: 7, GID: 8}.Environment(given, "/h")
	want := append([]string{"HOME=/h", "USER=7", "LOGNAME=7"}, given[:7]...)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (User{UID: 7, GID: 8, Name: "ana"}).Environment(nil, "/h"); !slices.Equal(got, []string{"HOME=/h", "USER=ana", "LOGNAME=ana"}) {
		t.Errorf("%q", got)
	}
}
