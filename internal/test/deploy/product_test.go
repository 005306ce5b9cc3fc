package deploy

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// found is the first group of a pattern in a file of the project.
func found(t *testing.T, path, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(read(t, path))
	if m == nil {
		t.Fatalf("%s has no %s", path, pattern)
	}
	return m[1]
}

// checkVariable wants a LEASEHOLD_ variable among those of leasehold run.
func checkVariable(t *testing.T, where, name string) {
	t.Helper()
	known := regexp.MustCompile(`env:"(LEASEHOLD_\w+)"`).FindAllStringSubmatch(read(t, "cmd/leasehold/settings.go"), -1)
	if strings.HasPrefix(name, "LEASEHOLD_") && !slices.ContainsFunc(known, func(m []string) bool { return m[1] == name }) {
		t.Errorf("%s: leasehold run reads no %s", where, name)
	}
}

// checkProbe wants a command that asks the sidecar, at its default address, for a path that it serves to
// everybody: in plain text, and with a certificate, which may be for another name.
func checkProbe(t *testing.T, where string, command []string) {
	t.Helper()
	address := found(t, "cmd/leasehold/settings.go", `env:"LEASEHOLD_LISTEN" default:"([^"]+)"`)
	var paths []string
	for _, m := range regexp.MustCompile(`https?://`+regexp.QuoteMeta(address)+`(/\w+)`).FindAllStringSubmatch(strings.Join(command, " "), -1) {
		paths = append(paths, m[1])
	}
	if paths = slices.Compact(paths); len(paths) != 1 {
		t.Fatalf("%s: %q asks %s for %q, want one path", where, command, address, paths)
	}
	path := paths[0]
	if !strings.Contains(read(t, "launcher/httpapi/probes.go"), `get("`+path+`", forAnybody`) {
		t.Errorf("%s: %s is not served to everybody", where, path)
	}
	for _, protocol := range []string{"http", "https"} {
		for _, answer := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			sidecar := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != path {
					http.NotFound(w, r)
					return
				}
				w.WriteHeader(answer)
			}))
			sidecar.Config.ErrorLog = log.New(io.Discard, "", 0)
			if protocol == "https" {
				sidecar.StartTLS()
			} else {
				sidecar.Start()
			}
			args := slices.Clone(command)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], address, sidecar.Listener.Addr().String())
			}
			said, err := exec.Command(args[0], args[1:]...).CombinedOutput()
			if (err == nil) != (answer == http.StatusOK) {
				t.Errorf("%s: %q of a sidecar that answers %d by %s: %v\n%s", where, args, answer, protocol, err, said)
			}
			sidecar.Close()
		}
	}
}
