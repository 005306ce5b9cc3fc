package witness

import (
	"errors"
	"strings"
	"testing"

	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery/table"
)

func TestWhetherTheDirectoryIsLocal(t *testing.T) {
	for network, want := range map[profiledir.Answer]table.Answer{profiledir.No: table.Yes, profiledir.Yes: table.No, profiledir.Unknown: table.Unknown} {
		if f := local(profiledir.Fact{Answer: network, How: "nfs"}); f.Name != table.DirectoryLocal || f.Answer != want || !strings.HasPrefix(f.How, "nfs") {
			t.Errorf("network %s: %+v, want %s", network, f, want)
		}
	}
}

func TestWhetherTheDirectoryIsUnlocked(t *testing.T) {
	errTaken := errors.New("somebody has it")
	fact := func(a profiledir.Answer) profiledir.Fact { return profiledir.Fact{Answer: a, How: "as said"} }
	const yes, no, unknown = profiledir.Yes, profiledir.No, profiledir.Unknown
	for _, tt := range []struct {
		kernel         error
		present, alive profiledir.Answer
		want           table.Answer
	}{
		{nil, no, no, table.Yes},
		{nil, no, unknown, table.Yes},
		{nil, yes, no, table.Yes},
		{nil, yes, yes, table.Unknown},
		{nil, yes, unknown, table.Unknown},
		{nil, unknown, unknown, table.Unknown},
		{errTaken, no, no, table.No},
		{errTaken, yes, no, table.No},
		{errTaken, unknown, unknown, table.No},
	} {
		f := unlocked(tt.kernel, profiledir.Singleton{Present: fact(tt.present), OwnerAlive: fact(tt.alive)})
		if f.Name != table.DirectoryUnlocked || f.Answer != tt.want || f.How == "" {
			t.Errorf("%v, SingletonLock %s, its owner alive %s: %+v, want %s", tt.kernel, tt.present, tt.alive, f, tt.want)
		}
	}
}
