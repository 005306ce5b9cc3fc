package lease

import (
	"errors"
	"strings"
	"testing"
)

func TestAppearance(t *testing.T) {
	for _, tt := range []struct {
		a         Appearance
		wrong     string // the field
		languages string
	}{
		{Appearance{}, "", ""},
		{Appearance{Timezone: "Europe/Berlin", Locale: "de-DE", Viewport: "1366x768", Geolocation: "-33.86,151.2"}, "", "de-DE,de,en-US,en"},
		{Appearance{Timezone: "UTC", Locale: "en-GB"}, "", "en-GB,en"},
		{Appearance{Locale: "ja"}, "", "ja,en-US,en"},
		{Appearance{Locale: "zh-Hant-TW"}, "", "zh-Hant-TW,zh,en-US,en"},
		{Appearance{Timezone: "Local"}, "timezone", ""},
		{Appearance{Timezone: "Mars/Olympus"}, "timezone", ""},
		{Appearance{Timezone: "../etc/passwd"}, "timezone", ""},
		{Appearance{Locale: "german"}, "locale", ""},
		{Appearance{Locale: "de_DE"}, "locale", ""},
		{Appearance{Viewport: "1366"}, "viewport", ""},
		{Appearance{Viewport: "100x100"}, "viewport", ""},
		{Appearance{Viewport: "01366x768"}, "viewport", ""},
		{Appearance{Viewport: "1366x9000"}, "viewport", ""},
		{Appearance{Geolocation: "52.52"}, "geolocation", ""},
		{Appearance{Geolocation: "91,13.4"}, "geolocation", ""},
		{Appearance{Geolocation: "52.52,-180.5"}, "geolocation", ""},
		{Appearance{Geolocation: "NaN,13.4"}, "geolocation", ""},
		{Appearance{Geolocation: "52.52, 13.4"}, "geolocation", ""},
	} {
		var wrong *AppearanceError
		err := tt.a.Check()
		if errors.As(err, &wrong) != (tt.wrong != "") || wrong != nil && wrong.Field != tt.wrong {
			t.Errorf("%+v: %v, want %s", tt.a, err, tt.wrong)
		}
		if all := strings.Join(tt.a.Languages(), ","); tt.wrong == "" && all != tt.languages {
			t.Errorf("%+v: %s, want %s", tt.a, all, tt.languages)
		}
	}
}
