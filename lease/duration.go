package lease

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"
)

// Duration is a length of time. In JSON and in queries it is a string such as "10s", or
// a number of seconds.
type Duration time.Duration

// MarshalJSON writes the string form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads either form. Its error is of the type to which encoding/json adds
// the field's name.
func (d *Duration) UnmarshalJSON(b []byte) error {
	s, err := strconv.Unquote(string(b))
	if err != nil {
		s = string(b)
	}
	if *d, err = ParseDuration(s); err != nil {
		return &json.UnmarshalTypeError{Value: string(b), Type: reflect.TypeFor[time.Duration]()}
	}
	return nil
}

// ParseDuration reads "10s", "1m30s" or a number of seconds. It refuses negative ones.
func ParseDuration(s string) (Duration, error) {
	if seconds, err := strconv.ParseFloat(s, 64); err == nil && seconds >= 0 && seconds < 1e9 {
		return Duration(seconds * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q: want a duration such as 10s, or seconds", s)
	}
	return Duration(d), nil
}
