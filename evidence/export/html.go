package export

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/launcher/api"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

// pages are the templates of the page. Their content comes from pages that may be hostile: the
// templates escape it, and never make a link of a URL.
var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"plain": plain, "clock": clock, "words": func(s string) string { return plain(strings.ReplaceAll(s, "_", " ")) },
}).Parse(pageText))

// policy allows the page's own style and the pictures in it, and nothing else.
func policy() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}

type page struct {
	Policy string
	Style  template.CSS // our own

	M        evidence.Manifest
	Sealed   evidence.Manifest
	SHA256   string
	Verdict  string
	Verified bool
	Chain    string
	Report   evidence.BundleReport

	State      string // the profile's state after the last event
	Decision   string
	Reasons    []string
	Inspection *api.Inspection
	Review     string
	Unknown    string
	Since      []row
	Checkpoint string
	NoJournal  string
	Timeline   []row
	Requests   []exchange
	Network    networkPart
	Others     bool // there are further pictures
}

type figure struct {
	Name, Caption string
	Large         bool
}

func writeHTML(ctx context.Context, b *bundle, w io.Writer) error {
	p, err := b.page(ctx)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	h := htmlWriter{ctx, out, b}
	steps := []func() error{
		func() error { return h.piece("top", p) },
		func() error { return h.main(p) },
		func() error { return h.piece("middle", p) },
		func() error { return h.others() },
		func() error { return h.piece("bottom", p) },
		out.Flush,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// page gathers what is shown besides the pictures.
func (b *bundle) page(ctx context.Context) (page, error) {
	content, err := b.partOf(ctx, evidence.KindJournal)
	if err != nil {
		return page{}, err
	}
	recorded, err := b.partOf(ctx, evidence.KindNetwork)
	if err != nil {
		return page{}, err
	}
	journal := checkpoint.Parse(content)
	p := page{
		Policy: policy(), Style: template.CSS(pageStyle),
		M: b.clear, Sealed: b.sealed, SHA256: sha256Hex(b.raw), Verdict: b.verdict(), Verified: len(b.report.Own) == 0, Chain: b.chain(), Report: b.report,
		Inspection: b.about.inspection, Unknown: b.about.unknown, Timeline: timeline(journal, b.about.events), Network: parseNetwork(recorded),
		Others: len(b.pictures) > 0 || slices.ContainsFunc(b.clear.Parts, func(p evidence.Part) bool { return isPicture(p) && p.Name != b.clear.LastScreenshot }),
	}
	p.Since, p.Checkpoint = since(journal)
	if content == nil {
		p.NoJournal = b.missing(evidence.KindJournal)
	}
	for _, e := range b.about.events {
		p.State = cmp.Or(string(e.State), p.State)
		if e.Decision != "" {
			p.Decision, p.Reasons = e.Decision, e.Reasons
		}
	}
	if i := b.about.inspection; i != nil && i.Decision != "" {
		p.Decision, p.Reasons = i.Decision, i.Reasons
	}
	if r := b.about.review; r != nil {
		p.Review = fmt.Sprintf("%s by %s at %s", r.Decision, r.Reviewer, clock(r.At))
		if r.Note != "" {
			p.Review += ": " + r.Note
		}
	}
	for _, e := range p.Network.Entries {
		p.Requests = append(p.Requests, exchange{at: e.At, method: e.Method, url: e.URL, kind: e.Type, status: e.Status, failed: e.Failed, bytes: e.Bytes})
	}
	return p, nil
}

// The members of an exchange that the page shows.

// At is when it was sent.
func (x exchange) At() string { return clock(x.at) }

// What is the method and the URL.
func (x exchange) What() string { return x.method + " " + x.url }

// Unsafe says that it may have changed something.
func (x exchange) Unsafe() bool { return !isSafe(x.method) }

// Answer is the status, or why there is none.
func (x exchange) Answer() string {
	switch {
	case x.failed != "":
		return "failed: " + x.failed
	case x.status == 0:
		return "no answer"
	}
	return fmt.Sprint(x.status)
}

type htmlWriter struct {
	ctx context.Context
	w   io.Writer
	b   *bundle
}

func (h htmlWriter) piece(name string, data any) error { return pages.ExecuteTemplate(h.w, name, data) }

// main writes the picture that a person wants to see first.
func (h htmlWriter) main(p page) error {
	if name := h.b.clear.LastScreenshot; name != "" {
		return h.picture(h.b, name, figure{Name: name, Caption: pageOf(p.M, name), Large: true})
	}
	return h.piece("none", p.M)
}

// others writes the other pictures of the bundle, and then those of the living session.
func (h htmlWriter) others() error {
	for _, part := range h.b.clear.Parts {
		if !isPicture(part) || part.Name == h.b.clear.LastScreenshot {
			continue
		}
		caption := pageOf(h.b.clear, part.Name)
		if i := slices.IndexFunc(h.b.clear.Found, func(f evidence.Found) bool { return f.Picture == part.Name }); i >= 0 {
			caption = strings.ReplaceAll(h.b.clear.Found[i].Name, "_", " ")
		}
		if err := h.picture(h.b, part.Name, figure{Name: part.Name, Caption: caption}); err != nil {
			return err
		}
	}
	for _, living := range h.b.pictures {
		m := living.clear
		caption := clock(m.At) + ", " + m.LastKnownURL
		if m.LastKnownStep != "" {
			caption += ", step " + m.LastKnownStep
		}
		if m.Checkpoint != "" {
			caption += ", checkpoint " + m.Checkpoint
		}
		for _, part := range m.Parts {
			f := figure{Name: m.EvidenceID + "/" + part.Name, Caption: "while the session lived: " + caption}
			if part.Missing != "" {
				f.Caption += ": " + part.Missing
				if err := h.piece("noFigure", f); err != nil {
					return err
				}
				continue
			}
			if err := h.picture(living, part.Name, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func isPicture(p evidence.Part) bool {
	return p.Missing == "" && (p.Kind == evidence.KindScreenshot || p.Kind == evidence.KindDetail)
}

func pageOf(m evidence.Manifest, name string) string {
	for _, p := range m.Pages {
		if p.Screenshot == name {
			return strings.TrimSpace(p.Title + " " + cmp.Or(p.CommittedURL, p.URL))
		}
	}
	return m.LastKnownURL
}

// picture writes a picture into the page. Content that is neither JPEG nor PNG is not written.
func (h htmlWriter) picture(b *bundle, name string, f figure) error {
	content, err := b.part(h.ctx, name)
	mediaType := imageType(content)
	switch {
	case errors.Is(err, errLeftOut):
		f.Caption += ": " + err.Error()
		return h.piece("noFigure", f)
	case err != nil:
		return err
	case mediaType == "":
		f.Caption += ": it is no picture"
		return h.piece("noFigure", f)
	}
	if err := h.piece("figure", f); err != nil {
		return err
	}
	if _, err := io.WriteString(h.w, `<img alt="" src="data:`+mediaType+`;base64,`); err != nil {
		return err
	}
	encoder := base64.NewEncoder(base64.StdEncoding, h.w)
	if _, err := encoder.Write(content); err != nil {
		return err
	}
	if err := encoder.Close(); err != nil {
		return err
	}
	_, err = io.WriteString(h.w, "\"></figure>\n")
	return err
}

// imageType is the media type of a picture, by its first bytes; "" for others.
func imageType(content []byte) string {
	switch {
	case strings.HasPrefix(string(content[:min(len(content), 3)]), "\xff\xd8\xff"):
		return "image/jpeg"
	case strings.HasPrefix(string(content[:min(len(content), 8)]), "\x89PNG\r\n\x1a\n"):
		return "image/png"
	}
	return ""
}
