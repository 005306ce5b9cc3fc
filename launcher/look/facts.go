package look

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/draw"
	"image/jpeg"
	"slices"

	"leasehold/evidence"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
)

// Part is the name of the part of a bundle with what was seen of each page.
const Part = "look.json"

// AddTo adds what was seen to a bundle: the facts to its manifest, the part with the details,
// and, for each fact that a page shows in one place, a picture of that place.
func (e *Looker) AddTo(b *evidence.Bundle) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.SortFunc(e.seen, func(a, b Seen) int { return a.Number - b.Number })
	found := facts(e.seen)
	for i := range found {
		if found[i].Answer == string(table.Yes) {
			found[i].Picture = e.picture(b, found[i].Name)
		}
	}
	b.SetFound(found)
	part, err := json.Marshal(e.seen)
	if err != nil {
		return err
	}
	return b.Add(Part, evidence.KindLook, "application/json", part)
}

// facts are the answers to all questions about pages.
func facts(seen []Seen) []evidence.Found {
	var blind, missed []string
	for _, s := range seen {
		if s.Blind == "" {
			continue
		}
		if blind = append(blind, s.Blind); !s.Harmless {
			missed = append(missed, s.Blind)
		}
	}
	var found []evidence.Found
	for _, q := range table.PageQuestions {
		var hows []string
		for _, s := range seen {
			for _, shown := range s.Shows {
				if shown.Question == q {
					hows = append(hows, shown.How)
				}
			}
		}
		f := findings.Seen(q, hows, blind)
		if q == table.PagesLookedAt {
			f = lookedAt(len(seen), missed)
		}
		found = append(found, evidence.Found{Name: f.Name, Answer: string(f.Answer), How: f.How, Picture: ""})
	}
	return found
}

func lookedAt(pages int, missed []string) table.Fact {
	if len(missed) > 0 {
		return table.Fact{Name: table.PagesLookedAt, Answer: table.No, How: missed[0]}
	}
	return table.Fact{Name: table.PagesLookedAt, Answer: table.Yes, How: fmt.Sprintf("%d pages were open", pages)}
}

// margin is how much of the page around the place a picture shows, in device pixels.
const margin = 24

// picture adds the picture for a fact to a bundle, and returns its name; empty if no page shows
// the fact in one place.
func (e *Looker) picture(b *evidence.Bundle, question string) string {
	for _, s := range e.seen {
		for _, shown := range s.Shows {
			if shown.Question != question {
				continue
			}
			part := crop(shown.image, shown.at, shown.view)
			name := fmt.Sprintf("fact-%s.jpg", question)
			if part != nil && b.Add(name, evidence.KindDetail, "image/jpeg", part) == nil {
				return name
			}
		}
	}
	return ""
}

// crop cuts a place out of a screenshot of a view; nil if the place is not in it. Chrome is not
// asked to do it, because a screenshot of a part of a page resizes the page.
func crop(screenshot []byte, at, view box) []byte {
	at = at.and(view)
	if len(screenshot) == 0 || at.empty() {
		return nil
	}
	whole, err := jpeg.Decode(bytes.NewReader(screenshot))
	if err != nil {
		return nil
	}
	size := whole.Bounds()
	sx, sy := float64(size.Dx())/view.w, float64(size.Dy())/view.h
	r := image.Rect(int(at.x*sx)-margin, int(at.y*sy)-margin, int((at.x+at.w)*sx)+margin, int((at.y+at.h)*sy)+margin).Intersect(size)
	if r.Empty() {
		return nil
	}
	out := image.NewRGBA(image.Rect(0, 0, r.Dx(), r.Dy()))
	draw.Draw(out, out.Bounds(), whole, r.Min, draw.Src)
	var encoded bytes.Buffer
	if jpeg.Encode(&encoded, out, &jpeg.Options{Quality: 70}) != nil {
		return nil
	}
	return encoded.Bytes()
}
