// Package export writes one bundle of evidence in a form that other people's tools open: HAR
// 1.2, one HTML file that needs nothing else, or a zip archive of everything.
//
// Only bytes that were compared with the bundle's hashes are written. A bundle that is not as
// it was sealed is refused, unless the caller accepts that; then the file says so. A bundle is
// written part by part: only one part's content is in memory at a time.
package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// Format is a form in which evidence is exported.
type Format string

// The formats.
const (
	// HAR is an HTTP Archive 1.2 (JSON) of the pages' requests, without headers, cookies and
	// bodies, which are not recorded.
	HAR Format = "har"
	// HTML is one file for a person, with the pictures in it and without scripts.
	HTML Format = "html"
	// Zip has the bundle's files as they are stored, so that they can be verified, and for an
	// encrypted bundle also the files in clear.
	Zip Format = "zip"
)

// Formats are the formats.
var Formats = []Format{HAR, HTML, Zip}

// Request says what is wanted.
type Request struct {
	EvidenceID string
	Format     Format
	// Unverified exports also a bundle that is not as it was sealed.
	Unverified bool
	// Stored exports a zip of what is stored, without decrypting anything.
	Stored bool
}

// Check returns an invalid_request problem if the request cannot be fulfilled.
func (q Request) Check() error {
	switch {
	case !slices.Contains(Formats, q.Format):
		return api.Invalid("format", "%.40q: want har, html or zip", string(q.Format))
	case q.Stored && q.Format != Zip:
		return api.Invalid("stored", "what is stored encrypted can only be exported as zip, not as %s", q.Format)
	}
	return nil
}

// Records are what the launcher knows about a profile besides its evidence. They are not part
// of what is sealed, and the HTML file says so.
type Records interface {
	// Profile returns the profile's record.
	Profile(ctx context.Context, profileID string) (api.Profile, error)
	// History returns its events, the oldest first.
	History(ctx context.Context, profileID string) ([]lease.Event, error)
	// Inspection returns what its last recovery found.
	Inspection(ctx context.Context, profileID string) (api.Inspection, error)
}

// Source is where evidence comes from.
type Source struct {
	Reader  evidence.Reader
	With    *crypt.Identities // nil: nothing that is encrypted can be opened
	Records Records
}

// UnverifiedError says that a bundle is not as it was sealed.
type UnverifiedError struct {
	EvidenceID string
	Findings   []evidence.Finding // one at least
}

func (e *UnverifiedError) Error() string {
	more := ""
	if n := len(e.Findings) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return fmt.Sprintf("evidence %s is not as it was sealed: %s%s", e.EvidenceID, findingText(e.Findings[0]), more)
}

func findingText(f evidence.Finding) string {
	what := f.EvidenceID
	if f.Part != "" {
		what += "/" + f.Part
	}
	return fmt.Sprintf("%s %s: %s", f.Problem, what, f.Detail)
}

// Export is a bundle that was checked and can be written.
type Export struct {
	FileName  string // letters, digits, dots, dashes and underscores
	MediaType string
	// Findings say what in the bundle is not as it was sealed.
	Findings []evidence.Finding

	b     *bundle
	write func(context.Context, *bundle, io.Writer) error
}

// Write writes the file. It reads each part and compares it with its hash again. After an error
// the file is not complete.
func (e *Export) Write(ctx context.Context, w io.Writer) error {
	if err := e.write(ctx, e.b, w); err != nil {
		return fmt.Errorf("export of evidence %s: %w", e.b.sealed.EvidenceID, err)
	}
	return nil
}

// Prepare reads and checks all of a bundle. The error is evidence.ErrNotFound,
// evidence.ErrDamaged, crypt.ErrNoKey or an *UnverifiedError, an *api.Problem for a request
// that cannot be fulfilled, or says what could not be read.
func Prepare(ctx context.Context, from Source, q Request) (*Export, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	b, err := load(ctx, from, q)
	if err != nil {
		return nil, err
	}
	if len(b.report.Own) > 0 && !q.Unverified {
		return nil, &UnverifiedError{q.EvidenceID, b.report.Own}
	}
	e := &Export{FileName: "leasehold-" + q.EvidenceID + "." + string(q.Format), Findings: b.report.Own, b: b}
	switch q.Format {
	case HAR:
		e.MediaType, e.write = "application/json", writeHAR
	case HTML:
		e.MediaType, e.write = "text/html; charset=utf-8", writeHTML
	case Zip:
		e.MediaType, e.write = "application/zip", writeZip
	}
	return e, nil
}

// bundle is a bundle that was checked.
type bundle struct {
	from       Source
	unverified bool

	raw    []byte // the manifest as it was sealed
	sealed evidence.Manifest
	clear  evidence.Manifest // what it hides; where stored is wanted, the same as sealed
	opened bool              // it is encrypted, and was opened
	report evidence.BundleReport
	// pictures are the pictures that the bundle names and that exist.
	pictures []*bundle
	about    about
}

// load reads what is needed from a bundle, and checks it.
func load(ctx context.Context, from Source, q Request) (*bundle, error) {
	b, err := from.open(ctx, q)
	if err != nil {
		return nil, err
	}
	var head evidence.Link
	if b.about, head, err = from.about(ctx, b.clear); err != nil {
		return nil, err
	}
	if b.report, err = evidence.VerifyBundle(ctx, from.Reader, b.sealed, head, from.With); err != nil {
		return nil, err
	}
	if sum := sha256Hex(b.raw); sum != b.report.SHA256 {
		b.report.Own = append(b.report.Own, evidence.Finding{
			Problem: evidence.BundleChanged, EvidenceID: q.EvidenceID,
			Detail: fmt.Sprintf("SHA-256 of the manifest was %s a moment ago, and is %s", sum, cmp.Or(b.report.SHA256, "not known")),
		})
	}
	for _, p := range b.clear.Pictures {
		q.EvidenceID = p.EvidenceID
		picture, err := from.open(ctx, q)
		switch {
		case errors.Is(err, evidence.ErrNotFound) || errors.Is(err, evidence.ErrDamaged):
			continue // the report has it
		case err != nil:
			return nil, err
		}
		b.pictures = append(b.pictures, picture)
	}
	return b, nil
}

func (from Source) open(ctx context.Context, q Request) (*bundle, error) {
	raw, err := from.Reader.Manifest(ctx, q.EvidenceID)
	if err != nil {
		return nil, err
	}
	b := &bundle{from: from, unverified: q.Unverified, raw: raw}
	if b.sealed, err = evidence.Decode(q.EvidenceID, raw); err != nil {
		return nil, err
	}
	if err := checkNames(b.sealed); err != nil {
		return nil, err
	}
	b.clear = b.sealed
	if !q.Stored && b.sealed.Encrypted() {
		b.opened = true
		b.clear, err = b.sealed.Open(from.With)
	}
	return b, err
}

// checkNames refuses a manifest whose parts cannot be files in one folder.
func checkNames(m evidence.Manifest) error {
	seen := map[string]bool{evidence.ManifestName: true}
	for _, p := range m.Parts {
		name := strings.ToLower(p.Name) // not every file system tells them apart
		if !evidence.SafeName(p.Name) || seen[name] {
			return fmt.Errorf("evidence %s: %w: part %.140q cannot be a file beside the others", m.EvidenceID, evidence.ErrDamaged, p.Name)
		}
		seen[name] = true
	}
	return nil
}

// errLeftOut says that a part has no bytes that can be exported.
var errLeftOut = errors.New("left out")

// stored returns a part as it is stored. If only verified bytes are allowed, it was compared
// with its hash.
func (b *bundle) stored(ctx context.Context, name string) ([]byte, error) {
	content, err := evidence.ReadPart(ctx, b.from.Reader, b.sealed, name)
	if errors.Is(err, evidence.ErrDamaged) && b.unverified {
		content, err = b.from.Reader.Part(ctx, b.sealed.EvidenceID, name)
	}
	if b.unverified && (errors.Is(err, evidence.ErrNotFound) || errors.Is(err, evidence.ErrDamaged)) {
		return nil, fmt.Errorf("%w: %w", errLeftOut, err)
	}
	return content, err
}

// part returns a part in clear. Its error is errLeftOut for a part that cannot be read in an
// export of unverified content.
func (b *bundle) part(ctx context.Context, name string) ([]byte, error) {
	stored, err := b.stored(ctx, name)
	if err != nil || !b.opened {
		return stored, err
	}
	content, err := b.sealed.OpenPart(b.from.With, name, stored)
	if b.unverified && errors.Is(err, evidence.ErrDamaged) {
		return nil, fmt.Errorf("%w: %w", errLeftOut, err)
	}
	return content, err
}

// partOf returns the first part of a kind in clear; nil if the bundle has none.
func (b *bundle) partOf(ctx context.Context, kind string) ([]byte, error) {
	for _, p := range b.clear.Parts {
		if p.Kind == kind && p.Missing == "" {
			content, err := b.part(ctx, p.Name)
			if errors.Is(err, errLeftOut) {
				continue
			}
			return content, err
		}
	}
	return nil, nil
}

// missing says why there is no part of a kind; "" where there is one.
func (b *bundle) missing(kind string) string {
	why := "the bundle has no such part"
	for _, p := range b.clear.Parts {
		if p.Kind == kind {
			if p.Missing == "" {
				return ""
			}
			why = p.Missing
		}
	}
	return why
}

func (b *bundle) verdict() string {
	if len(b.report.Own) > 0 {
		return fmt.Sprintf("NOT VERIFIED: %d things are not as they were sealed", len(b.report.Own))
	}
	return "verified: all parts have the SHA-256 that the manifest names"
}

// chain says in one line what is known of the bundle's place in the profile's chain.
func (b *bundle) chain() string {
	others := len(b.report.Findings) - len(b.report.Own)
	switch {
	case others > 0:
		return fmt.Sprintf("the chain of the profile's other bundles has %d findings", others)
	case len(b.report.NamedBy) == 0:
		return "nothing names this bundle yet, so that the hash of its manifest cannot be compared with anything"
	}
	return "verified: the hash of its manifest is the one that " + strings.Join(b.report.NamedBy, " and ") + " names, and the profile's chain is whole"
}
