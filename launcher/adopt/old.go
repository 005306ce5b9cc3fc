package adopt

import (
	"errors"

	"github.com/rs/zerolog"

	"leasehold/cdpproxy"
	"leasehold/internal/signed"
	"leasehold/launcher/cluster"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery"
	"leasehold/launcher/sessionfile"
)

// SignOld signs what an earlier version, which did not sign, has left in its data directory and
// beside its profiles: floors, notes about browsers, session files, ledgers, cookies,
// inspections, and the end of its presence. It is meant for the first start with a key, after
// which a file without a signature counts as forged; before that, anybody who could write these
// files could forge them anyway. Another launcher on the same profiles directory signs its own
// files.
//
// If a file has a signature made with another key, the key was lost: then nothing is signed,
// and each profile goes to a person.
func SignOld(launcherID, dataDir string, root *profiledir.Root, files sessionfile.Dir, jar sessionfile.Jar, key *signed.Key, log zerolog.Logger) error {
	guarded, err := root.Old()
	if err != nil {
		return err
	}
	kept, err := files.Old()
	if err != nil {
		return err
	}
	cookies, err := jar.Old()
	if err != nil {
		return err
	}
	kept = append(kept, cookies...)
	foreign := 0
	for _, o := range kept {
		if o.Foreign {
			foreign++
		}
	}
	mine := func(o profiledir.Old) bool { return o.Home == "" || o.Home == launcherID }
	for _, o := range guarded {
		if o.Foreign && mine(o) {
			foreign++
		}
	}
	if foreign > 0 {
		log.Error().Int("files", foreign).Msg("the signing key was lost: files are there that another key has signed; nothing that this host kept is believed, and its profiles go to a person")
		return nil
	}
	ledgers, err := files.Ledgers()
	if err != nil {
		return err
	}
	said := 0
	for _, path := range ledgers {
		if err := cdpproxy.SignLedger(path, key); err != nil {
			log.Warn().Err(err).Msg("what is open on a browser's pipe is not known")
		}
		said++
	}
	for _, o := range kept {
		if err := o.Sign(); err != nil {
			return err
		}
		said++
	}
	for _, o := range guarded {
		if !mine(o) || o.Foreign {
			continue
		}
		if err := root.Sign(o); err != nil {
			return err
		}
		said++
	}
	if err := errors.Join(cluster.SignOldStay(dataDir, launcherID, key), recovery.SignOldInspections(dataDir, key)); err != nil {
		return err
	}
	if said > 0 {
		log.Info().Int("files", said).Msg("what an earlier version left without signatures is signed now; from now on such a file is a forged one")
	}
	return nil
}
