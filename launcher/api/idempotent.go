package api

import (
	"encoding/json"
	"reflect"

	"leasehold/checkpoint/shape"
)

// Idempotent says which requests may be made twice. In JSON it is a list of their shapes, such as
// "POST /votes" (see shape.Pattern), or true: none but those that are known to be repeatable, by
// what is known of their site. These it always means.
type Idempotent struct {
	Declared bool
	Shapes   []string
}

// maxShapes is the most shapes that a checkpoint may name.
const maxShapes = 50

// MarshalJSON writes the list, or whether there is a declaration.
func (i Idempotent) MarshalJSON() ([]byte, error) {
	if len(i.Shapes) > 0 {
		return json.Marshal(i.Shapes)
	}
	return json.Marshal(i.Declared)
}

// UnmarshalJSON reads either form.
func (i *Idempotent) UnmarshalJSON(b []byte) error {
	*i = Idempotent{}
	if json.Unmarshal(b, &i.Declared) == nil {
		return nil
	}
	if json.Unmarshal(b, &i.Shapes) != nil {
		return &json.UnmarshalTypeError{Value: string(b), Type: reflect.TypeFor[Idempotent]()}
	}
	i.Declared = true
	return nil
}

// Check refuses what are no shapes.
func (i Idempotent) Check() error {
	if len(i.Shapes) > maxShapes {
		return Invalid("idempotent", "want at most %d shapes", maxShapes)
	}
	for _, text := range i.Shapes {
		p, err := shape.ParsePattern(text)
		switch {
		case err != nil:
			return Invalid("idempotent", "%v", err)
		case p.Vague():
			return Invalid("idempotent", "%q: {} stands for many operations: want the name of one", text)
		}
	}
	return nil
}
