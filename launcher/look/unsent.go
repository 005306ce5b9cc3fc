package look

import (
	"context"
	"slices"
	"strings"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

// unsent finds what was typed and is still there. The page's own source tells what nobody
// typed; if a page writes what is typed into its source, the field itself is asked. Fields of
// secret kinds are asked first.
func (v *view) unsent(ctx context.Context, s *scene, focused focus) error {
	if !v.known.Typed && !v.known.Acted {
		return nil
	}
	asked := 0
	var kinds []checkpoint.Field
	secret, plain := -1, -1
	fields := s.typed()
	slices.SortStableFunc(fields, func(a, b typedField) int { return rank(a) - rank(b) })
	for _, f := range fields {
		if !f.sure {
			if asked++; !v.known.Typed || asked > maxEdited {
				continue
			}
			switch edited, err := v.edited(ctx, &s.elements[f.index]); {
			case err != nil:
				return err
			case !edited:
				continue
			}
		}
		if f.kind.Secret() {
			secret = f.index
		} else {
			plain = f.index
		}
		if !slices.Contains(kinds, f.kind) {
			kinds = append(kinds, f.kind)
		}
	}
	list := func(secret bool) string {
		var names []string
		for _, k := range kinds {
			if k.Secret() == secret {
				names = append(names, k.Words())
			}
		}
		return strings.Join(names, ", ")
	}
	if secret >= 0 {
		v.show(table.SecretUnsent, "%s stands in a field of %s", list(true), place(s.elements[secret].url))
	}
	if plain < 0 {
		return nil
	}
	v.show(table.InputUnsent, "%s stands in a field of %s", list(false), place(s.elements[plain].url))
	if v.known.Typed && v.known.Silent && pressed(focused) {
		v.show(table.PressedUnsent, "a button was pressed after %s was typed, and the page has sent nothing since, on %s", list(false), place(s.elements[plain].url))
	}
	return nil
}

// rank orders fields: those of secret kinds come first.
func rank(f typedField) int {
	if f.kind.Secret() {
		return 0
	}
	return 1
}

// editedScript tells whether somebody typed into a field, or is about to.
const editedScript = `function() { return this.matches(":user-valid, :user-invalid") || this.getRootNode().activeElement === this }`

// edited asks a field whether somebody typed into it. If the field is gone, its page was left.
func (v *view) edited(ctx context.Context, e *element) (is bool, err error) {
	var object struct {
		Object struct {
			ID string `json:"objectId"`
		} `json:"object"`
	}
	err = v.call(ctx, e.session, "DOM.resolveNode", map[string]any{"backendNodeId": e.backend, "objectGroup": "look"}, &object)
	if err == nil {
		var r answer
		if err = v.call(ctx, e.session, "Runtime.callFunctionOn", map[string]any{
			"functionDeclaration": editedScript, "objectId": object.Object.ID, "returnByValue": true, "silent": true,
		}, &r); err == nil {
			return is, r.into(&is)
		}
	}
	if silent(err) {
		return false, err
	}
	return false, nil
}
