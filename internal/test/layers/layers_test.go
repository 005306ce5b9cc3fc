package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// order is the list of packages of ARCHITECTURE.md. A package may import only those
// below it. An adapter (natskv, natsstore) stands above the package whose interface it
// implements.
var order = []string{
	"leasehold/cmd/leasehold",
	"leasehold/launcher/httpapi",
	"leasehold/launcher/agents",
	"leasehold/launcher/console",
	"leasehold/launcher",
	"leasehold/launcher/people",
	"leasehold/launcher/accounts",
	"leasehold/launcher/workers",
	"leasehold/launcher/grant",
	"leasehold/launcher/travel",
	"leasehold/launcher/bundles",
	"leasehold/launcher/profiles",
	"leasehold/launcher/host",
	"leasehold/launcher/adopt",
	"leasehold/launcher/cluster",
	"leasehold/launcher/events",
	"leasehold/launcher/notify",
	"leasehold/launcher/view",
	"leasehold/launcher/catalog",
	"leasehold/launcher/session",
	"leasehold/launcher/witness",
	"leasehold/launcher/recovery",
	"leasehold/launcher/accountcheck",
	"leasehold/launcher/signin",
	"leasehold/launcher/snapshotter",
	"leasehold/launcher/readers",
	"leasehold/launcher/slots",
	"leasehold/launcher/browser",
	"leasehold/launcher/monitor",
	"leasehold/launcher/look",
	"leasehold/launcher/chrome",
	"leasehold/launcher/profiledir",
	"leasehold/launcher/roster",
	"leasehold/launcher/sites",
	"leasehold/launcher/fileroots",
	"leasehold/launcher/proxies",
	"leasehold/launcher/secrets",
	"leasehold/launcher/recovery/findings",
	"leasehold/launcher/recovery/table",
	"leasehold/launcher/sessionfile",
	"leasehold/evidence/export",
	"leasehold/launcher/queue",
	"leasehold/launcher/api",
	"leasehold/launcher/principal",
	"leasehold/cdpproxy",
	"leasehold/cdpproxy/acts",
	"leasehold/cdpproxy/methods",
	"leasehold/launcher/snapshots/natsobjects",
	"leasehold/launcher/snapshots",
	"leasehold/lease/natskv",
	"leasehold/lease",
	"leasehold/checkpoint/wording",
	"leasehold/checkpoint",
	"leasehold/checkpoint/site",
	"leasehold/deploy/sites",
	"leasehold/checkpoint/netlog",
	"leasehold/checkpoint/shape",
	"leasehold/evidence/natsstore",
	"leasehold/evidence/s3store",
	"leasehold/evidence/capture",
	"leasehold/evidence",
	"leasehold/evidence/crypt",
	"leasehold/evidence/recorder",
	"leasehold/checkpoint/ledger",
	"leasehold/evidence/redact",
	"leasehold",
	"leasehold/docs/examples/go",
	"leasehold/docs/examples/go/resume",
}

// products are behind api.Service, and nobody who asks it names them.
var products = []string{
	"leasehold/launcher", "leasehold/launcher/people", "leasehold/launcher/accounts", "leasehold/launcher/workers", "leasehold/launcher/grant",
	"leasehold/launcher/travel", "leasehold/launcher/bundles", "leasehold/launcher/profiles", "leasehold/launcher/host",
}

// never are imports that order would allow, but that are forbidden.
var never = map[string][]string{
	"leasehold/launcher/httpapi": append([]string{"leasehold/launcher/chrome", "leasehold/cdpproxy", "leasehold/lease/natskv"}, products...),
	"leasehold/launcher/agents":  products,
	"leasehold/launcher/console": products,
	// Recovery knows no witness by name, and nothing of Chrome.
	"leasehold/launcher/recovery": {
		"leasehold/launcher/accountcheck", "leasehold/launcher/browser", "leasehold/launcher/monitor", "leasehold/launcher/look", "leasehold/launcher/chrome",
		"leasehold/launcher/proxies", "leasehold/cdpproxy", "leasehold/evidence/capture", "leasehold/evidence/recorder",
	},
	"leasehold/launcher": {
		"leasehold/lease/natskv", "leasehold/evidence/natsstore", "leasehold/evidence/s3store",
		"leasehold/launcher/snapshots/natsobjects",
	},
}

// only are the project's packages that a package may import, where those below it are too many. The mux
// knows no judge: what a command means for an account, and what becomes of that, is decided elsewhere.
var only = map[string][]string{
	"leasehold/cdpproxy": {"leasehold/cdpproxy/acts", "leasehold/cdpproxy/methods", "leasehold/lease",
		"leasehold/internal/boottime", "leasehold/internal/id", "leasehold/internal/reads", "leasehold/internal/signed"},
	"leasehold/cdpproxy/acts":    {"leasehold/cdpproxy/methods", "leasehold/internal/boottime"},
	"leasehold/cdpproxy/methods": {},
}

// harness is the path of the packages that only tests and the commands of the Makefile
// may use.
const harness = "leasehold/internal/test/"

type pkg struct {
	ImportPath string
	Dir, Doc   string
	GoFiles    []string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,GoFiles,Imports", "leasehold/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImportsPointDown(t *testing.T) {
	all := packages(t)
	if len(all) < len(order) {
		t.Fatalf("%d packages listed, want at least the %d of the list", len(all), len(order))
	}
	for _, p := range all {
		helper := strings.HasPrefix(p.ImportPath, "leasehold/internal/")
		at := slices.Index(order, p.ImportPath)
		if at < 0 && !helper {
			t.Errorf("%s is in no place of the list", p.ImportPath)
		}
		few, limited := only[p.ImportPath]
		for _, i := range p.Imports {
			to := slices.Index(order, i)
			switch {
			case strings.HasPrefix(i, "github.com/nats-io/") && p.ImportPath == "leasehold/lease":
				t.Errorf("%s imports %s: lease knows no network", p.ImportPath, i)
			case strings.HasPrefix(i, harness) && !strings.HasPrefix(p.ImportPath, harness):
				t.Errorf("%s imports %s: the harness is for tests", p.ImportPath, i)
			case limited && strings.HasPrefix(i, "leasehold/") && !slices.Contains(few, i):
				t.Errorf("%s imports %s, and may import no more of the project than %q", p.ImportPath, i, few)
			case to < 0 || helper:
			case to < at:
				t.Errorf("%s imports %s, which is above it", p.ImportPath, i)
			case slices.Contains(never[p.ImportPath], i):
				t.Errorf("%s imports %s, and must not", p.ImportPath, i)
			}
		}
	}
}

// The table of ARCHITECTURE.md has each package of the list, in the same order, and no other.
func TestArchitectureHasTheList(t *testing.T) {
	text, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "| package | what it is |\n| --- | --- |\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	var shown []string
	for row := range strings.Lines(table) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, " | ")[0], -1) {
			shown = append(shown, "leasehold/"+m[1])
		}
	}
	want := slices.DeleteFunc(slices.Clone(order), func(p string) bool {
		return p == "leasehold" || strings.HasPrefix(p, "leasehold/docs/")
	})
	if !slices.Equal(shown, want) {
		t.Errorf("the table of ARCHITECTURE.md has\n%s\nwant\n%s", strings.Join(shown, "\n"), strings.Join(want, "\n"))
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}
