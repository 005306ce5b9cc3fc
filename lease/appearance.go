package lease

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Appearance is what sites see of the profile's browser beside the browser itself: the same on every
// host. Empty fields are as the host has them.
type Appearance struct {
	// Timezone is a name of the tz database, such as Europe/Berlin.
	Timezone string `json:"timezone,omitempty"`
	// Locale is a language, with a region where it matters, such as de-DE: the languages that pages
	// and requests name.
	Locale string `json:"locale,omitempty"`
	// Viewport is the size of pages in CSS pixels, such as 1366x768.
	Viewport string `json:"viewport,omitempty"`
	// Geolocation is where pages find that they are, if they may ask: latitude and longitude in
	// degrees, such as 52.52,13.405.
	Geolocation string `json:"geolocation,omitempty"`
}

var locale = regexp.MustCompile(`^[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?$`)

// The bounds of a viewport, in pixels.
const (
	leastViewport = 200
	mostViewport  = 8192
)

// AppearanceError says which field is wrong, and what is wanted.
type AppearanceError struct{ Field, Why string }

func (e *AppearanceError) Error() string { return e.Field + ": " + e.Why }

// Check returns an *AppearanceError unless the browser can take all of it.
func (a Appearance) Check() error {
	if _, err := time.LoadLocation(a.Timezone); err != nil || a.Timezone == "Local" {
		return &AppearanceError{"timezone", fmt.Sprintf("%.60q: want a name of the tz database, such as Europe/Berlin", a.Timezone)}
	}
	if a.Locale != "" && !locale.MatchString(a.Locale) {
		return &AppearanceError{"locale", fmt.Sprintf("%.60q: want a language, and a region where it matters, such as de or de-DE", a.Locale)}
	}
	if _, _, ok := a.Size(); a.Viewport != "" && !ok {
		return &AppearanceError{"viewport", fmt.Sprintf("%.60q: want WIDTHxHEIGHT in pixels from %d to %d, such as 1366x768", a.Viewport, leastViewport, mostViewport)}
	}
	if _, _, ok := a.Place(); a.Geolocation != "" && !ok {
		return &AppearanceError{"geolocation", fmt.Sprintf("%.60q: want LATITUDE,LONGITUDE in degrees, such as 52.52,13.405", a.Geolocation)}
	}
	return nil
}

// Place is the geolocation in degrees; false if there is none.
func (a Appearance) Place() (latitude, longitude float64, ok bool) {
	north, east, both := strings.Cut(a.Geolocation, ",")
	latitude, errN := strconv.ParseFloat(north, 64)
	longitude, errE := strconv.ParseFloat(east, 64)
	return latitude, longitude, both && errN == nil && errE == nil && math.Abs(latitude) <= 90 && math.Abs(longitude) <= 180
}

// Size is the viewport in pixels; false if there is none.
func (a Appearance) Size() (width, height int, ok bool) {
	w, h, both := strings.Cut(a.Viewport, "x")
	width, errW := strconv.Atoi(w)
	height, errH := strconv.Atoi(h)
	fits := func(n int) bool { return n >= leastViewport && n <= mostViewport }
	return width, height, both && errW == nil && errH == nil && fits(width) && fits(height) && a.Viewport == fmt.Sprintf("%dx%d", width, height)
}

// Languages are those that the browser names to sites, the first one first: English is what every
// site understands.
func (a Appearance) Languages() []string {
	if a.Locale == "" {
		return nil
	}
	language, _, region := strings.Cut(a.Locale, "-")
	all := []string{a.Locale}
	if region {
		all = append(all, language)
	}
	if language != "en" {
		all = append(all, "en-US", "en")
	}
	return all
}
