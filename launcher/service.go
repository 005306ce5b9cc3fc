package launcher

import (
	"context"
	"encoding/json"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// What the parts of api.Service ask is answered by the products: see there.

// Acquire implements api.SessionService.
func (l *Launcher) Acquire(ctx context.Context, m api.Manifest) (api.Session, error) {
	return l.grants.Acquire(ctx, m)
}

// Connect implements api.SessionService.
func (l *Launcher) Connect(ctx context.Context, sessionID, targetID string, closeFrames bool) (api.Connection, error) {
	return l.workers.Connect(ctx, sessionID, targetID, closeFrames)
}

// Sessions implements api.SessionService.
func (l *Launcher) Sessions() []api.Session {
	return l.workers.Sessions()
}

// Session implements api.SessionService.
func (l *Launcher) Session(sessionID string) (api.Session, error) {
	return l.workers.Session(sessionID)
}

// SessionByCapability implements api.SessionService.
func (l *Launcher) SessionByCapability(capability string) (api.Session, error) {
	return l.workers.SessionByCapability(capability)
}

// SessionOf implements api.SessionService.
func (l *Launcher) SessionOf(ctx context.Context, profileID, workerID, taskID string, ephemeral bool) (api.Session, bool) {
	return l.workers.SessionOf(ctx, profileID, workerID, taskID, ephemeral)
}

// Heartbeat implements api.SessionService.
func (l *Launcher) Heartbeat(ctx context.Context, sessionID string, h api.Heartbeat) (api.Session, error) {
	return l.workers.Heartbeat(ctx, sessionID, h)
}

// Step implements api.SessionService.
func (l *Launcher) Step(ctx context.Context, sessionID string, s api.Step) error {
	return l.workers.Step(ctx, sessionID, s)
}

// Checkpoint implements api.SessionService.
func (l *Launcher) Checkpoint(ctx context.Context, sessionID string, c api.Checkpoint) error {
	return l.workers.Checkpoint(ctx, sessionID, c)
}

// Event implements api.SessionService.
func (l *Launcher) Event(ctx context.Context, sessionID string, e api.TaskEvent) error {
	return l.workers.Event(ctx, sessionID, e)
}

// Release implements api.SessionService.
func (l *Launcher) Release(ctx context.Context, sessionID string, r api.Release) (api.Session, error) {
	return l.workers.Release(ctx, sessionID, r)
}

// View implements api.PersonService.
func (l *Launcher) View(ctx context.Context, sessionID string) (api.Connection, error) {
	return l.people.View(ctx, sessionID)
}

// Ask implements api.PersonService.
func (l *Launcher) Ask(ctx context.Context, sessionID string, a api.AskPerson) (api.Answer, error) {
	return l.people.Ask(ctx, sessionID, a)
}

// TakeOver implements api.PersonService.
func (l *Launcher) TakeOver(ctx context.Context, sessionID string, t api.TakeOver) (api.Session, error) {
	return l.people.TakeOver(ctx, sessionID, t)
}

// HandBack implements api.PersonService.
func (l *Launcher) HandBack(ctx context.Context, sessionID string, h api.HandBack) (api.Session, error) {
	return l.people.HandBack(ctx, sessionID, h)
}

// Hold implements api.PersonService.
func (l *Launcher) Hold(ctx context.Context, profileID string, h api.HoldRequest) (api.Session, error) {
	return l.people.Hold(ctx, profileID, h)
}

// PlanSignIn implements api.PersonService.
func (l *Launcher) PlanSignIn(ctx context.Context, profileID, url string) (string, error) {
	return l.people.PlanSignIn(ctx, profileID, url)
}

// BeginSignIn implements api.PersonService.
func (l *Launcher) BeginSignIn(ctx context.Context, profileID string, s api.SignInStart) (api.Session, error) {
	return l.people.BeginSignIn(ctx, profileID, s)
}

// CheckSignIn implements api.PersonService.
func (l *Launcher) CheckSignIn(ctx context.Context, sessionID string) (api.SignInChecked, error) {
	return l.people.CheckSignIn(ctx, sessionID)
}

// EndSignIn implements api.PersonService.
func (l *Launcher) EndSignIn(ctx context.Context, sessionID, why string) error {
	return l.people.EndSignIn(ctx, sessionID, why)
}

// Targets implements api.TabService.
func (l *Launcher) Targets(ctx context.Context, sessionID string) ([]api.Target, error) {
	return l.workers.Targets(ctx, sessionID)
}

// NewTarget implements api.TabService.
func (l *Launcher) NewTarget(ctx context.Context, sessionID, url string) (api.Target, error) {
	return l.workers.NewTarget(ctx, sessionID, url)
}

// ActivateTarget implements api.TabService.
func (l *Launcher) ActivateTarget(ctx context.Context, sessionID, targetID string) error {
	return l.workers.ActivateTarget(ctx, sessionID, targetID)
}

// CloseTarget implements api.TabService.
func (l *Launcher) CloseTarget(ctx context.Context, sessionID, targetID string) error {
	return l.workers.CloseTarget(ctx, sessionID, targetID)
}

// ListProfiles implements api.ProfileService.
func (l *Launcher) ListProfiles(ctx context.Context, q api.ProfileQuery) (api.ProfilePage, error) {
	return l.profiles.ListProfiles(ctx, q)
}

// Changes implements api.ProfileService.
func (l *Launcher) Changes() api.Changes {
	return l.profiles.Changes()
}

// Hosts implements api.ProfileService.
func (l *Launcher) Hosts(ctx context.Context) (api.Hosts, error) {
	return l.profiles.Hosts(ctx)
}

// Queue implements api.ProfileService.
func (l *Launcher) Queue(ctx context.Context) ([]api.Waiting, error) {
	return l.profiles.Queue(ctx)
}

// Profile implements api.ProfileService.
func (l *Launcher) Profile(ctx context.Context, profileID string) (api.Profile, error) {
	return l.profiles.Profile(ctx, profileID)
}

// PutProfile implements api.ProfileService.
func (l *Launcher) PutProfile(ctx context.Context, profileID string, s api.ProfileSettings) (api.Profile, error) {
	return l.travel.PutProfile(ctx, profileID, s)
}

// ImportProfile implements api.ProfileService.
func (l *Launcher) ImportProfile(ctx context.Context, profileID string, i api.ProfileImport) (api.Profile, error) {
	return l.travel.ImportProfile(ctx, profileID, i)
}

// CloneProfile implements api.ProfileService.
func (l *Launcher) CloneProfile(ctx context.Context, profileID string, c api.ProfileClone) (api.Profile, error) {
	return l.travel.CloneProfile(ctx, profileID, c)
}

// ArchiveProfile implements api.ProfileService.
func (l *Launcher) ArchiveProfile(ctx context.Context, profileID string, a api.ProfileArchive) (api.Archived, error) {
	return l.travel.ArchiveProfile(ctx, profileID, a)
}

// RemoveClone implements api.ProfileService.
func (l *Launcher) RemoveClone(ctx context.Context, profileID string, r api.ProfileRemove) (api.Removed, error) {
	return l.travel.RemoveClone(ctx, profileID, r)
}

// CheckProfile implements api.ProfileService.
func (l *Launcher) CheckProfile(ctx context.Context, profileID string) (api.SessionChecked, error) {
	return l.accounts.CheckProfile(ctx, profileID)
}

// MoveProfile implements api.TravelService.
func (l *Launcher) MoveProfile(ctx context.Context, profileID string, m api.ProfileMove) (api.Profile, error) {
	return l.travel.MoveProfile(ctx, profileID, m)
}

// RehomeProfile implements api.TravelService.
func (l *Launcher) RehomeProfile(ctx context.Context, profileID string, r api.ProfileRehome) (api.Profile, error) {
	return l.travel.RehomeProfile(ctx, profileID, r)
}

// Snapshots implements api.TravelService.
func (l *Launcher) Snapshots(ctx context.Context, profileID string) ([]api.Snapshot, error) {
	return l.travel.Snapshots(ctx, profileID)
}

// RestoreProfile implements api.TravelService.
func (l *Launcher) RestoreProfile(ctx context.Context, profileID string, r api.ProfileRestore) (api.Restored, error) {
	return l.travel.RestoreProfile(ctx, profileID, r)
}

// VerifySnapshots implements api.TravelService.
func (l *Launcher) VerifySnapshots(ctx context.Context, profileID string, v api.ProfileVerify) (api.SnapshotsChecked, error) {
	return l.travel.VerifySnapshots(ctx, profileID, v)
}

// History implements api.EvidenceService.
func (l *Launcher) History(ctx context.Context, profileID string) ([]lease.Event, error) {
	return l.profiles.History(ctx, profileID)
}

// Evidence implements api.EvidenceService.
func (l *Launcher) Evidence(ctx context.Context, profileID string) ([]api.Bundle, error) {
	return l.bundles.Evidence(ctx, profileID)
}

// EvidenceManifest implements api.EvidenceService.
func (l *Launcher) EvidenceManifest(ctx context.Context, evidenceID string) (json.RawMessage, error) {
	return l.bundles.EvidenceManifest(ctx, evidenceID)
}

// EvidencePart implements api.EvidenceService.
func (l *Launcher) EvidencePart(ctx context.Context, evidenceID, part string, stored bool) ([]byte, string, error) {
	return l.bundles.EvidencePart(ctx, evidenceID, part, stored)
}

// ExportEvidence implements api.EvidenceService.
func (l *Launcher) ExportEvidence(ctx context.Context, evidenceID string, e api.EvidenceExport) (api.ExportedEvidence, error) {
	return l.bundles.ExportEvidence(ctx, evidenceID, e)
}

// Inspection implements api.EvidenceService.
func (l *Launcher) Inspection(ctx context.Context, profileID string) (api.Inspection, error) {
	return l.profiles.Inspection(ctx, profileID)
}

// Review implements api.EvidenceService.
func (l *Launcher) Review(ctx context.Context, profileID string, r api.ReviewRequest) (api.Profile, error) {
	return l.profiles.Review(ctx, profileID, r)
}

// Sites implements api.SiteService.
func (l *Launcher) Sites(ctx context.Context) ([]api.SiteSummary, error) {
	return l.accounts.Sites(ctx)
}

// Site implements api.SiteService.
func (l *Launcher) Site(ctx context.Context, name string) (api.Site, error) {
	return l.accounts.Site(ctx, name)
}

// PutSite implements api.SiteService.
func (l *Launcher) PutSite(ctx context.Context, name string, p api.SitePut) (api.Site, error) {
	return l.accounts.PutSite(ctx, name, p)
}

// TeachSite implements api.SiteService.
func (l *Launcher) TeachSite(ctx context.Context, t api.SiteTeaching) (api.Site, error) {
	return l.accounts.TeachSite(ctx, t)
}

// SiteShapes implements api.SiteService.
func (l *Launcher) SiteShapes(ctx context.Context, name string) ([]api.SiteShape, error) {
	return l.accounts.SiteShapes(ctx, name)
}

// SiteAnswers implements api.SiteService.
func (l *Launcher) SiteAnswers(ctx context.Context, name string) ([]api.SiteAnswer, error) {
	return l.accounts.SiteAnswers(ctx, name)
}

// DeleteSite implements api.SiteService.
func (l *Launcher) DeleteSite(ctx context.Context, name string, d api.SiteDelete) error {
	return l.accounts.DeleteSite(ctx, name, d)
}

// TrySite implements api.SiteService.
func (l *Launcher) TrySite(ctx context.Context, name string, t api.SiteTry) (api.SiteTried, error) {
	return l.accounts.TrySite(ctx, name, t)
}

// ReplaySite implements api.SiteService.
func (l *Launcher) ReplaySite(ctx context.Context, name string, r api.SiteReplay) (api.SiteReplayed, error) {
	return l.accounts.ReplaySite(ctx, name, r)
}
