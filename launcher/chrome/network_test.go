package chrome

import "testing"

func TestAHelperSaysWhatItIs(t *testing.T) {
	for line, want := range map[string]bool{
		"/usr/bin/chromium --type=utility " + networkArgument + " --lang=en":               true, // as helpers write it
		"/usr/bin/chromium\x00--type=utility\x00" + networkArgument + "\x00--lang=en\x00":  true,
		"/usr/bin/chromium --type=utility " + networkArgument + "Other":                    false,
		"/usr/bin/chromium --type=utility --utility-sub-type=storage.mojom.StorageService": false,
		"/usr/bin/chromium --type=renderer":                                                false,
		"":                                                                                 false,
	} {
		if got := hasArgument([]byte(line), networkArgument); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}
