package export

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"leasehold/evidence"
)

// openedFolder has the decrypted content of what is encrypted. It has no manifest at its top,
// so that a store made of the unpacked files does not take it for a bundle.
const openedFolder = "opened"

// zipEpoch is the first time that a zip archive can name.
var zipEpoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// writeZip writes the bundle's files as they are stored, those of the pictures that it names,
// and what was decrypted of them. The same bundle gives the same bytes: all files have the time
// of the bundle.
func writeZip(ctx context.Context, b *bundle, w io.Writer) error {
	z := &zipper{w: zip.NewWriter(w), of: b}
	for _, one := range b.all() {
		if err := z.stored(ctx, one); err != nil {
			return err
		}
		if !one.opened {
			continue
		}
		if err := z.clear(ctx, one); err != nil {
			return err
		}
	}
	if err := z.add("SHA256SUMS", "text/plain", []byte(strings.Join(z.sums, ""))); err != nil {
		return err
	}
	if err := z.add("README.txt", "text/plain", []byte(b.readme(z.leftOut))); err != nil {
		return err
	}
	return z.w.Close()
}

func (b *bundle) all() []*bundle { return append([]*bundle{b}, b.pictures...) }

type zipper struct {
	w       *zip.Writer
	of      *bundle
	sums    []string // lines as sha256sum wants them
	leftOut []string // what could not be had, and why
}

// stored adds the files of a bundle as they are stored.
func (z *zipper) stored(ctx context.Context, b *bundle) error {
	folder := b.sealed.EvidenceID
	if err := z.sum(path.Join(folder, evidence.ManifestName), "application/json", b.raw, sha256Hex(b.raw)); err != nil {
		return err
	}
	for _, p := range b.sealed.Parts {
		if p.Missing != "" {
			continue
		}
		content, err := b.stored(ctx, p.Name)
		if err := z.part(path.Join(folder, p.Name), p, content, err); err != nil {
			return err
		}
	}
	return nil
}

// clear adds the decrypted content of a bundle.
func (z *zipper) clear(ctx context.Context, b *bundle) error {
	folder := path.Join(openedFolder, b.sealed.EvidenceID)
	manifest, err := json.MarshalIndent(b.clear, "", "  ")
	if err != nil {
		return err
	}
	manifest = append(manifest, '\n')
	if err := z.sum(path.Join(folder, evidence.ManifestName), "application/json", manifest, sha256Hex(manifest)); err != nil {
		return err
	}
	for _, p := range b.clear.Parts {
		if p.Missing != "" {
			continue
		}
		content, err := b.part(ctx, p.Name)
		if err := z.part(path.Join(folder, p.Name), p, content, err); err != nil {
			return err
		}
	}
	return nil
}

// part adds a part, or notes why it is left out.
func (z *zipper) part(name string, p evidence.Part, content []byte, err error) error {
	if errors.Is(err, errLeftOut) {
		z.leftOut = append(z.leftOut, fmt.Sprintf("%s: %v", name, err))
		return nil
	}
	if err != nil {
		return err
	}
	return z.sum(name, p.MediaType, content, p.SHA256)
}

// sum adds a file whose hash is named in SHA256SUMS.
func (z *zipper) sum(name, mediaType string, content []byte, sum string) error {
	z.sums = append(z.sums, sum+"  "+name+"\n")
	return z.add(name, mediaType, content)
}

// add adds a file. It does not compress what compression would not make smaller.
func (z *zipper) add(name, mediaType string, content []byte) error {
	method := zip.Deflate
	if strings.HasPrefix(mediaType, "image/") || z.of.sealed.Encrypted() && !strings.HasPrefix(name, openedFolder) {
		method = zip.Store
	}
	at := z.of.sealed.At.UTC()
	if at.Year() < 1980 || at.Year() > 2107 { // the format has no other years
		at = zipEpoch
	}
	header := &zip.FileHeader{Name: name, Method: method, Modified: at}
	header.SetMode(0o600)
	f, err := z.w.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return err
}

// readme explains the files of the archive, and how to check them.
func (b *bundle) readme(leftOut []string) string {
	var t strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&t, format+"\n", args...) }
	m := b.sealed
	line("Evidence %s of profile %s, as Leasehold sealed it at %s.", m.EvidenceID, plain(m.ProfileID), harTime(m.At))
	line("Reason: %s. Lease token: %d. SHA-256 of the manifest: %s", plain(m.RecoveryReason), m.LeaseToken, sha256Hex(b.raw))
	line("")
	if len(b.report.Own) > 0 {
		line("NOT VERIFIED. What is in here is not what was sealed:")
		for _, f := range b.report.Own {
			line("  %s", plain(findingText(f)))
		}
	} else {
		line("Verified when this archive was made: each file has the SHA-256 that the manifest names.")
	}
	for _, why := range leftOut {
		line("  left out: %s", plain(why))
	}
	line("")
	line("%s/", m.EvidenceID)
	line("    manifest.json names every file of the bundle with its SHA-256, the bundle before it,")
	line("    and why what is missing is missing. The other files are the bundle's parts.")
	for _, p := range b.pictures {
		line("%s/  a picture that was stored while the session lived", p.sealed.EvidenceID)
	}
	switch {
	case b.opened:
		line("%s/  the same in clear: the files above are encrypted (age)", openedFolder)
	case m.Encrypted():
		line("The files are encrypted (age), to %s.", plain(strings.Join(m.Encryption.Recipients, ", ")))
		line("To open one: age -d -i KEY FILE")
	}
	line("")
	line("What the parts contain, and what is never recorded, is in docs/evidence.md.")
	line("")
	line("To check it, where this archive was unpacked:")
	line("    sha256sum -c SHA256SUMS")
	line("    leasehold evidence verify --store file://$PWD --id %s:%s", m.EvidenceID, sha256Hex(b.raw))
	line("The second is the whole check of this bundle. Its place in the profile's chain can only be")
	line("checked where the profile's other bundles are: leasehold evidence verify %s", plain(m.ProfileID))
	return t.String()
}
