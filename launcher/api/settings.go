package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"leasehold/lease"
)

// Setting is one of a profile's settings, in words for people.
type Setting struct{ Name, Text string }

// SettingsShown are the settings of a profile that differ from the defaults, by name. A setting that
// is added to the record is among them.
func SettingsShown(s lease.Settings) []Setting {
	if s.MaxActiveRuns == 1 {
		s.MaxActiveRuns = 0
	}
	var all map[string]any
	raw, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		panic(err) // it is plain data
	}
	var shown []Setting
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if value := all[name]; value != 0.0 {
			shown = append(shown, Setting{strings.ReplaceAll(name, "_", " "), settingText(value)})
		}
	}
	return shown
}

func settingText(value any) string {
	switch v := value.(type) {
	case []any:
		var texts []string
		for _, one := range v {
			texts = append(texts, settingText(one))
		}
		return strings.Join(texts, ", ")
	case map[string]any:
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			texts = append(texts, strings.ReplaceAll(name, "_", " ")+" "+settingText(v[name]))
		}
		return strings.Join(texts, ", ")
	case float64:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprint(value)
}
