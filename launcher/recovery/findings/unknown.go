package findings

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/launcher/recovery/table"
)

// Unknown counts the shapes of which nothing was known, and which count as changes of the account, in
// a session that ended in order: for each site by the name under which it is counted. Those of sites
// without a file are counted in the domains of the account only. answers are what sites say beside
// what they said before the session.
func Unknown(s checkpoint.Summary, t Task, answers []site.Compared, profile string, now time.Time) map[string]site.Tally {
	sum := sha256.Sum256([]byte(profile))
	account := hex.EncodeToString(sum[:4])
	counted := map[string]site.Tally{}
	for _, e := range sorted(s.Unsafe, s, t).counted {
		name, has := t.Sites.NameFor(e.URL)
		if e.Known != "" || e.Shape == "" || name == "" || !has && inDomains(e.URL, t.Domains()).Answer != table.Yes {
			continue
		}
		c := site.Count{Sessions: 1, Accounts: []string{account}, LastAt: now.UTC().Truncate(time.Second)}
		switch unchanged, changed := site.ShownAbout(e.URL, answers); {
		case changed:
			c.Changed = 1
		case unchanged:
			c.Unchanged = 1
		}
		if counted[name] == nil {
			counted[name] = site.Tally{}
		}
		counted[name][e.Shape] = c
	}
	return counted
}
