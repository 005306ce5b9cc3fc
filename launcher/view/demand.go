package view

// What viewers want of a page's pictures.

// castParams are the parameters of Page.startScreencast: the picture is at most this large, in
// pixels.
type castParams struct {
	Format    string `json:"format"`
	Quality   int    `json:"quality"`
	MaxWidth  int    `json:"maxWidth"`
	MaxHeight int    `json:"maxHeight"`
}

// size is what a viewer said about the area where it shows pictures: the width and height in
// physical pixels, and the JPEG quality. A zero value was not given.
type size struct{ width, height, quality int }

// The bounds of a picture, in pixels, and of its quality. A page of 4096 by 2160 pixels is
// drawn smaller.
const (
	minSide, maxWidth, maxHeight = 160, 1920, 1200
	minQuality, maxQuality       = 20, 80
	usualWidth, usualHeight      = 1280, 800
	usualQuality                 = 60
	sideStep                     = 160 // sizes are rounded up to multiples of this, so that resizing a window restarts few casts
)

// paramsFor are the parameters of one cast for all of these viewers.
func paramsFor(sizes ...size) castParams {
	p := castParams{Format: "jpeg"}
	for _, s := range sizes {
		if s.width <= 0 || s.height <= 0 {
			s.width, s.height = usualWidth, usualHeight
		}
		if s.quality <= 0 {
			s.quality = usualQuality
		}
		p.MaxWidth = max(p.MaxWidth, within(roundUp(s.width), minSide, maxWidth))
		p.MaxHeight = max(p.MaxHeight, within(roundUp(s.height), minSide, maxHeight))
		p.Quality = max(p.Quality, within(s.quality, minQuality, maxQuality))
	}
	return p
}

func within(n, least, most int) int { return max(least, min(n, most)) }

func roundUp(n int) int { return (min(n, maxWidth) + sideStep - 1) / sideStep * sideStep }

// maxUntaken is how many pictures may be on their way to a viewer that has not yet confirmed
// them.
const maxUntaken = 2

// demand is what the page's viewers want; nothing if there are none. ready says that one of
// them was sent the newest picture, and can take another.
func (c *cast) demand() (p castParams, ready bool) {
	w := c.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	var sizes []size
	newest := uint64(0)
	if f := w.frames[c.target]; f != nil {
		newest = f.head.Sequence
	}
	for v := range w.viewers {
		if v.paused || v.showing() != c.target {
			continue
		}
		sizes = append(sizes, v.size)
		ready = ready || v.sentFrame >= newest && len(v.untaken) < maxUntaken
	}
	if len(sizes) == 0 {
		return castParams{}, false
	}
	return paramsFor(sizes...), ready
}
