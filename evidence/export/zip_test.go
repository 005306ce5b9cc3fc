package export_test

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/evidence"
	"leasehold/evidence/export"
)

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// files are those of an archive.
func files(t *testing.T, archive string) map[string]string {
	t.Helper()
	z, err := zip.NewReader(strings.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range z.File {
		if !filepath.IsLocal(f.Name) || !f.Mode().IsRegular() || f.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", f.Name, f.Mode())
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		all[f.Name] = string(b)
	}
	return all
}

func TestTheArchiveIsAStoreThatVerifies(t *testing.T) {
	for name, keys := range map[string]evidence.Keys{"in clear": {}, "encrypted": newKeys(t)} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, keys)
			archive := h.export(t, export.Request{EvidenceID: "ev_2", Format: export.Zip})
			if again := h.export(t, export.Request{EvidenceID: "ev_2", Format: export.Zip}); again != archive {
				t.Error("the same bundle makes another archive")
			}
			all := files(t, archive)
			dir := t.TempDir()
			for name, content := range all {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			sums := strings.Split(strings.TrimSuffix(all["SHA256SUMS"], "\n"), "\n")
			for _, line := range sums {
				sum, name, _ := strings.Cut(line, "  ")
				if sumOf([]byte(all[name])) != sum {
					t.Errorf("SHA256SUMS is wrong about %s", name)
				}
			}
			if len(sums) != len(all)-2 {
				t.Errorf("%d hashes for %v", len(sums), names(all))
			}
			store, err := evidence.ExistingDirStore(dir)
			if err != nil {
				t.Fatal(err)
			}
			link := evidence.Link{EvidenceID: "ev_2", SHA256: h.records.record.EvidenceSHA256}
			report, err := evidence.VerifyAlone(t.Context(), store, link, keys.With)
			if err != nil || !report.OK() || report.Bundles != 2 || report.Parts != 5 {
				t.Errorf("%+v, %v", report, err)
			}
			if want := "--id ev_2:" + link.SHA256; !strings.Contains(all["README.txt"], want) {
				t.Errorf("README.txt does not say %q:\n%s", want, all["README.txt"])
			}
			if err := os.WriteFile(filepath.Join(dir, "ev_2", "screenshot-1.jpg"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if report, err := evidence.VerifyAlone(t.Context(), store, link, nil); err != nil || len(report.Findings) != 1 || report.Findings[0].Problem != evidence.PartChanged {
				t.Errorf("a changed part: %+v, %v", report, err)
			}
		})
	}
}
