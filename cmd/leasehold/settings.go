//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"time"

	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/internal/runas"
	"leasehold/launcher/notify"
	"leasehold/launcher/principal"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/secrets"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// RunConfig are the settings of the sidecar. Complete fills in those that were left out, and
// refuses those that cannot work.
//
// What a setting of type path names, or one whose value is a URL that begins with file://, is kept
// from browsers (ownFiles), unless the tag browsers says that they may read it, or use it.
type RunConfig struct {
	// ConfigFile is the file from which settings were read: the flag is that of all commands.
	ConfigFile string `kong:"-" name:"config" type:"path"`

	Listen         string        `env:"LEASEHOLD_LISTEN" default:"127.0.0.1:9333" placeholder:"ADDR" help:"Address for workers, REST and the console (default: ${default})."`
	DataDir        string        `env:"LEASEHOLD_DATA_DIR" type:"path" placeholder:"DIR" help:"What the sidecar keeps (default: leasehold in the user's state directory)."`
	ProfilesDir    string        `env:"LEASEHOLD_PROFILES_DIR" type:"path" placeholder:"DIR" help:"The Chrome profiles (default: profiles in the data directory)."`
	NATSURL        string        `name:"nats-url" env:"LEASEHOLD_NATS_URL" placeholder:"URL" help:"NATS server with JetStream (default: the embedded one)."`
	NATSCreds      string        `name:"nats-creds" env:"LEASEHOLD_NATS_CREDS" type:"path" placeholder:"FILE" help:"Credentials for --nats-url: a user's JWT and seed, or the seed of an nkey."`
	NATSCA         string        `name:"nats-ca" env:"LEASEHOLD_NATS_CA" type:"path" browsers:"read" placeholder:"FILE" help:"Certificates (PEM) of those who sign that of --nats-url (default: the system's)."`
	NATSReplicas   int           `name:"nats-replicas" env:"LEASEHOLD_NATS_REPLICAS" placeholder:"N" help:"Copies of leases and events on the servers of --nats-url, 1, 3 or 5 (default: 3 in a cluster, else 1)."`
	NATSListen     string        `name:"nats-listen" env:"LEASEHOLD_NATS_LISTEN" default:"127.0.0.1:4333" placeholder:"ADDR" help:"Address where the embedded NATS serves subscribers (default: ${default})."`
	EvidenceStore  string        `env:"LEASEHOLD_EVIDENCE_STORE" default:"nats://" placeholder:"URL" help:"Where evidence is kept: nats:// (the NATS of this sidecar), file:///path, or s3://bucket/prefix?endpoint=..&region=..&path_style=true with the credentials of the AWS tools (default: ${default})."`
	EvidenceMaxAge time.Duration `env:"LEASEHOLD_EVIDENCE_MAX_AGE" default:"2160h" placeholder:"DURATION" help:"Evidence older than this is removed, unless a review needs it; 0 keeps it (default: 2160h, 90 days)."`
	EvidenceMax    byteSize      `name:"evidence-max-bytes" env:"LEASEHOLD_EVIDENCE_MAX_BYTES" default:"20GiB" placeholder:"SIZE" help:"Where all evidence is more than this, the oldest is removed, unless a review needs it; 0 is no limit (default: ${default})."`
	EvidenceTo     []string      `name:"evidence-recipient" env:"LEASEHOLD_EVIDENCE_RECIPIENT" placeholder:"AGE1..." help:"Encrypt evidence at rest to this public key (leasehold evidence keygen makes one); several by commas."`
	EvidenceKeys   []string      `name:"evidence-identity" env:"LEASEHOLD_EVIDENCE_IDENTITY" type:"path" placeholder:"FILE" help:"File with private keys with which this sidecar may open encrypted evidence, for the console and REST; several by commas (default: it cannot)."`
	ProfileStore   string        `env:"LEASEHOLD_PROFILE_STORE" placeholder:"URL" help:"Where snapshots of profiles are kept, so that they outlive this host: file:///path, s3://bucket/prefix as for --evidence-store, or nats:// (the NATS of this sidecar); needs --profile-key (default: no snapshots are made)."`
	ProfileKey     string        `env:"LEASEHOLD_PROFILE_KEY" type:"path" placeholder:"FILE" help:"File with the key of the profile store, the same for all its sidecars (leasehold profiles keygen makes one)."`
	SnapshotKeep   int           `name:"profile-snapshots" env:"LEASEHOLD_PROFILE_SNAPSHOTS" default:"10" placeholder:"N" help:"Newest snapshots of a profile that are kept; 0 keeps all, up to 999 (default: ${default})."`
	SnapshotMaxAge time.Duration `name:"profile-snapshot-max-age" env:"LEASEHOLD_PROFILE_SNAPSHOT_MAX_AGE" default:"720h" placeholder:"DURATION" help:"Snapshots older than this are removed, save a profile's newest; 0 keeps them (default: 720h, 30 days)."`
	PictureEvery   time.Duration `name:"picture-interval" env:"LEASEHOLD_PICTURE_INTERVAL" default:"30s" placeholder:"DURATION" help:"Least time between two pictures of a session's page that are stored before anything is lost, while things change; 0 takes them at checkpoints only (default: ${default})."`
	EventsMax      byteSize      `name:"events-max-bytes" env:"LEASEHOLD_EVENTS_MAX_BYTES" default:"1GiB" placeholder:"SIZE" help:"Where all events are more than this, the oldest leave; 0 is no limit (default: ${default})."`
	LauncherID     string        `env:"LEASEHOLD_LAUNCHER_ID" placeholder:"ID" help:"Name of this launcher (default: made once, kept in the data directory)."`
	LeaseTTL       time.Duration `env:"LEASEHOLD_LEASE_TTL" default:"30s" placeholder:"DURATION" help:"Life of a lease without a renewal (default: ${default})."`
	PersonGrace    time.Duration `env:"LEASEHOLD_PERSON_GRACE" default:"2m" placeholder:"DURATION" help:"Time that a person who took a session over may be gone before it is handed back (default: ${default})."`
	ReconnectGrace time.Duration `env:"LEASEHOLD_RECONNECT_GRACE" default:"5s" placeholder:"DURATION" help:"Time that a dropped worker has to come back (default: ${default})."`
	Cooldown       time.Duration `env:"LEASEHOLD_COOLDOWN" default:"30s" placeholder:"DURATION" help:"Pause before a recovered profile is granted again (default: ${default})."`
	ReviewWhen     []string      `env:"LEASEHOLD_REVIEW_WHEN" placeholder:"FACT[=ANSWER]" help:"A fact of the inspection with which a lost profile goes to a person, whatever the table says (see docs/recovery.md); several by commas."`
	GETs           string        `name:"gets" env:"LEASEHOLD_GETS" enum:"signs,ask" default:"signs" placeholder:"WHICH" help:"Which GETs of a page that the worker acted on send a lost profile to a person: those with a sign of a write (signs), or each (ask) (default: ${default})."`
	Proxies        string        `env:"LEASEHOLD_PROXIES" type:"path" placeholder:"FILE" help:"YAML file with the proxies that profiles name by proxy_id; passwords in it are read again when they change (default: none)."`
	SitesDir       string        `name:"sites-dir" env:"LEASEHOLD_SITES_DIR" type:"path" browsers:"read" placeholder:"DIR" help:"Directory of files about sites, NAME.yaml or NAME.json, that this sidecar tells the others (see docs/sites.md); they are read again when they change (default: none)."`
	Secrets        string        `env:"LEASEHOLD_SECRETS" type:"path" placeholder:"FILE" help:"File with the passwords with which accounts are signed in, encrypted with age (see docs/person.md); it is read for each sign-in; needs --secrets-identity (default: none)."`
	SecretsKeys    []string      `name:"secrets-identity" env:"LEASEHOLD_SECRETS_IDENTITY" type:"path" placeholder:"FILE" help:"File with the private key that opens --secrets; several by commas."`
	FileRoot       []string      `env:"LEASEHOLD_FILE_ROOT" type:"path" browsers:"use" placeholder:"DIR" help:"Directory whose files workers may upload from and download to, besides the exchange directory of their session; several by commas, or given again (default: the system's temporary directory)."`
	HomeTimeout    time.Duration `env:"LEASEHOLD_HOME_TIMEOUT" default:"1h" placeholder:"DURATION" help:"Time that a quarantined profile waits for its host to come back, before it goes to a person (default: ${default})."`
	OrphanTimeout  time.Duration `env:"LEASEHOLD_ORPHAN_TIMEOUT" default:"10m" placeholder:"DURATION" help:"Time that browsers wait for the next launcher after theirs was killed, or left them; then they are closed (default: 10m)."`
	MaxBrowsers    int           `env:"LEASEHOLD_MAX_BROWSERS" placeholder:"N" help:"Most browsers at a time (default: no limit)."`
	MinFreeDisk    byteSize      `env:"LEASEHOLD_MIN_FREE_DISK" default:"256MiB" placeholder:"SIZE" help:"With less space left for profiles or data no browser is started; 0 is no bound (default: ${default})."`
	DiskReserve    byteSize      `env:"LEASEHOLD_DISK_RESERVE" default:"64MiB" placeholder:"SIZE" help:"Space of the data directory's disk that is taken beforehand, and given back to evidence, journals and the NATS inside when the disk is full; 0 keeps none (default: ${default})."`
	KeepWarmIdle   time.Duration `env:"LEASEHOLD_KEEP_WARM_IDLE" default:"10m" placeholder:"DURATION" help:"Time that a browser which is kept warm waits for the next task of its profile; 0 keeps none (default: 10m)."`
	KeepWarmMax    int           `env:"LEASEHOLD_KEEP_WARM_MAX" default:"4" placeholder:"N" help:"Most browsers that are kept warm at a time; 0 keeps none (default: ${default})."`
	KeepWarmMemory byteSize      `name:"keep-warm-min-memory" env:"LEASEHOLD_KEEP_WARM_MIN_MEMORY" default:"1GiB" placeholder:"SIZE" help:"With less memory available, or while tasks wait for memory, warm browsers are closed, the longest idle first; 0 does not look (default: ${default})."`
	BrowserMemory  byteSize      `env:"LEASEHOLD_BROWSER_MEMORY" default:"0" placeholder:"SIZE" help:"Most memory of one browser: one that is above it for 5s is ended, with its evidence; a profile may have less; 0 is no bound (default: 0)."`
	BrowserWeight  int           `name:"browser-cpu-weight" env:"LEASEHOLD_BROWSER_CPU_WEIGHT" placeholder:"N" help:"A browser's part of the processors, 1 to 10000, where control groups can be had; others have 100 (default: as usual)."`
	HangTimeout    time.Duration `env:"LEASEHOLD_HANG_TIMEOUT" default:"1m" placeholder:"DURATION" help:"Time in which a browser has to answer the sidecar before it is ended as one that hangs; 0 is for ever (default: 1m)."`
	Chrome         string        `env:"LEASEHOLD_CHROME" placeholder:"FILE" help:"Chrome or Chromium, a path or a name in PATH (default: the first one found)."`
	Headless       *bool         `env:"LEASEHOLD_HEADLESS" negatable:"" help:"Run browsers without windows (default: where there is no display)."`
	BrowserSandbox string        `env:"LEASEHOLD_BROWSER_SANDBOX" enum:"auto,require,off" default:"auto" placeholder:"WHETHER" help:"Whether the kernel confines each browser to its profile and the files that it needs: as far as this host can (auto), or else the sidecar does not start (require), or off (default: ${default})."`
	BrowserUser    string        `env:"LEASEHOLD_BROWSER_USER" placeholder:"NAME|UID[:GID]" help:"User as whom browsers run, who owns the profiles then; the sidecar has to be root, or have the capabilities for that (see docs/sandbox.md) (default: the sidecar's own)."`
	AdvertiseURL   string        `env:"LEASEHOLD_ADVERTISE_URL" placeholder:"URL" help:"How others reach this sidecar, for the URLs that it hands out and for the sidecars of other hosts; none: workers of this host alone use it."`
	TokenFile      string        `env:"LEASEHOLD_TOKEN_FILE" type:"path" placeholder:"FILE" help:"File with the API token that callers have to show, one line of at least 16 characters."`
	TLSCert        string        `name:"tls-cert" env:"LEASEHOLD_TLS_CERT" type:"path" browsers:"read" placeholder:"FILE" help:"Certificate (PEM) to serve with."`
	TLSKey         string        `name:"tls-key" env:"LEASEHOLD_TLS_KEY" type:"path" placeholder:"FILE" help:"Key (PEM) of the certificate."`
	MaxPeer        int           `name:"max-peer-connections" env:"LEASEHOLD_MAX_PEER_CONNECTIONS" default:"1024" placeholder:"N" help:"Most connections of one user of this host, or of one address elsewhere, without websockets; 0 is no limit (default: ${default})."`
	AllowUID       []string      `name:"allow-uid" env:"LEASEHOLD_ALLOW_UID" placeholder:"UID=ROLE:PATTERN" help:"What another user of this host may do, such as 1000=worker:shop_*; several by commas (default: the sidecar's own user and root are admins, others get nothing)."`
	Tokens         string        `env:"LEASEHOLD_TOKENS" type:"path" placeholder:"FILE" help:"YAML file with the principals that show API tokens or certificates (leasehold token new prints a line of it); it is read again when it changes (default: none)."`
	ClientCA       string        `name:"client-ca" env:"LEASEHOLD_CLIENT_CA" type:"path" browsers:"read" placeholder:"FILE" help:"Authorities (PEM) of client certificates; --tokens says whose they are (default: none)."`
	TrustedProxy   []string      `name:"trusted-proxy" env:"LEASEHOLD_TRUSTED_PROXY" placeholder:"CIDR" help:"Addresses of reverse proxies whose X-Forwarded-Proto and X-Forwarded-Host count; several by commas (default: none)."`
	PlainText      bool          `name:"insecure-plaintext" env:"LEASEHOLD_INSECURE_PLAINTEXT" help:"Serve other hosts without TLS, because something else encrypts."`
	ImportRoot     []string      `name:"import-root" env:"LEASEHOLD_IMPORT_ROOT" type:"path" placeholder:"DIR" help:"Directory below which Chrome profiles may be imported from; several by commas (default: none)."`
	OTLPEndpoint   string        `name:"otlp-endpoint" env:"LEASEHOLD_OTLP_ENDPOINT" placeholder:"URL" help:"Receiver of OpenTelemetry traces, over HTTP, such as http://127.0.0.1:4318 (default: that of OTEL_EXPORTER_OTLP_ENDPOINT; none: no traces are made)."`
	Notify         []string      `env:"LEASEHOLD_NOTIFY" placeholder:"URL" help:"Webhook that is told what needs a person (docs/notify.md): https://..., or file:///path with the URL in that file; after it #form=text for chats, &event=NAME and &profile=PATTERN; several by commas, or given again (default: none)."`
	NotifySecret   string        `env:"LEASEHOLD_NOTIFY_SECRET" type:"path" placeholder:"FILE" help:"File with the key that signs what is sent to webhooks, of at least 16 bytes (default: nothing is signed)."`
	NotifyProxy    string        `env:"LEASEHOLD_NOTIFY_PROXY" placeholder:"URL" help:"Proxy for what is sent to webhooks: http://..., or file:///path with the URL in that file (default: none)."`
	LogLevel       string        `env:"LEASEHOLD_LOG_LEVEL" enum:"trace,debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"One of ${enum} (default: ${default})."`
	LogFormat      string        `env:"LEASEHOLD_LOG_FORMAT" enum:"console,json" default:"console" placeholder:"FORMAT" help:"One of ${enum} (default: ${default})."`
	OnExit         string        `env:"LEASEHOLD_ON_EXIT" enum:"close,leave" default:"close" placeholder:"WHAT" help:"Browsers when the sidecar ends: close them, or leave them to the next one unless systemd shuts the host down (default: ${default})."`

	// Token is the API token from TokenFile, and Keys are those of EvidenceTo and EvidenceKeys;
	// Complete sets both.
	Token string        `kong:"-"`
	Keys  evidence.Keys `kong:"-"`
	// SnapshotKey is the key from ProfileKey, set by Complete; nil: none.
	SnapshotKey *snapshots.Key `kong:"-"`
	// Users are those of AllowUID, and TrustedProxies those of TrustedProxy; Complete sets
	// both.
	Users          []principal.Principal `kong:"-"`
	TrustedProxies []netip.Prefix        `kong:"-"`
	// Notices are the settings from Notify, NotifySecret and NotifyProxy, set by Complete.
	Notices notify.Options `kong:"-"`
	// User is the user of BrowserUser, set by Complete; nil: none.
	User *runas.User `kong:"-"`
}

// Complete returns the settings with the defaults that depend on the user or the host.
// The error names the flag, and its exit code is exitUsage.
func (c RunConfig) Complete(getenv func(string) string) (RunConfig, error) {
	var err error
	if c.DataDir == "" {
		if c.DataDir, err = defaultDataDir(getenv); err != nil {
			return c, &exitError{exitUsage, err}
		}
	}
	if c.ProfilesDir == "" {
		c.ProfilesDir = filepath.Join(c.DataDir, "profiles")
	}
	if c.Headless == nil {
		headless := getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == ""
		c.Headless = &headless
	}
	if err := c.validate(); err != nil {
		return c, &exitError{exitUsage, err}
	}
	if c.TokenFile != "" {
		if c.Token, err = readOwnToken(c.TokenFile); err != nil {
			return c, &exitError{exitUsage, err}
		}
	}
	if c.Keys.To, err = crypt.ParseRecipients(c.EvidenceTo); err != nil {
		return c, exitWith(exitUsage, "--evidence-recipient: %w", err)
	}
	if c.Keys.With, err = crypt.ReadIdentities(c.EvidenceKeys); err != nil {
		return c, exitWith(exitUsage, "--evidence-identity: %w", err)
	}
	if c.ProfileKey != "" {
		if c.SnapshotKey, err = snapshots.ReadKey(c.ProfileKey); err != nil {
			return c, exitWith(exitUsage, "--profile-key: %w", err)
		}
	}
	if c.Secrets != "" {
		if _, err := c.secrets(); err != nil {
			return c, exitWith(exitUsage, "--secrets: %w", err)
		}
	}
	if c.Notices, err = c.notices(); err != nil {
		return c, &exitError{exitUsage, err}
	}
	if c.Users, c.TrustedProxies, err = c.peers(); err != nil {
		return c, &exitError{exitUsage, err}
	}
	if c.User, err = c.browserUser(); err != nil {
		return c, &exitError{exitUsage, err}
	}
	return c, nil
}

// secrets reads those with which accounts are signed in.
func (c RunConfig) secrets() (*secrets.Set, error) {
	if len(c.SecretsKeys) == 0 {
		return nil, errors.New("want --secrets-identity FILE, too, with the private key that opens it")
	}
	with, err := crypt.ReadIdentities(c.SecretsKeys)
	if err != nil {
		return nil, fmt.Errorf("--secrets-identity: %w", err)
	}
	return secrets.Read(c.Secrets, with)
}

// defaultDataDir is the directory leasehold in the user's XDG state directory.
func defaultDataDir(getenv func(string) string) (string, error) {
	// The XDG specification says to ignore a relative path.
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "leasehold"), nil
	}
	home := getenv("HOME")
	if home == "" {
		return "", fmt.Errorf("--data-dir is not given, and neither XDG_STATE_HOME nor HOME says where it could be")
	}
	return filepath.Join(home, ".local", "state", "leasehold"), nil
}

// launcherID is the form of a launcher's id.
var launcherID = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// validate refuses what could not work, or would not be safe.
func (c RunConfig) validate() error {
	for _, check := range []func() error{
		c.validateListen, c.validateNATS, c.validateEvidence, c.validateSnapshots, c.validateLeases, c.validateReplicas, c.validateBrowsers, c.validateProofs, c.validateTraces,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c RunConfig) validateNATS() error {
	if c.NATSURL == "" {
		switch {
		case c.NATSCreds != "":
			return fmt.Errorf("--nats-creds is for a server of yours: give --nats-url too")
		case c.NATSCA != "":
			return fmt.Errorf("--nats-ca is for a server of yours: give --nats-url too")
		}
		host, err := splitAddress("--nats-listen", c.NATSListen)
		if err != nil {
			return err
		}
		if host == "" {
			return fmt.Errorf("--nats-listen %q: want a host too, such as 127.0.0.1%s", c.NATSListen, c.NATSListen)
		}
		if !isLoopback(host) && (!c.provesOthers() || c.TLSCert == "") {
			return fmt.Errorf("--nats-listen %s can be reached from other hosts: give --tokens or --token-file, --tls-cert and --tls-key too, or listen on 127.0.0.1", c.NATSListen)
		}
		return nil
	}
	if c.natsIsOwn() {
		return fmt.Errorf("--nats-url (%s) is %s, where the NATS inside this sidecar listens: leave it out to use that one; a variable for leasehold watch alone is LEASEHOLD_EVENTS_URL; with another NATS on that address give another --nats-listen", natsURLVariable, c.NATSListen)
	}
	return checkNATS(c.natsTarget())
}

func (c RunConfig) validateReplicas() error {
	if c.NATSReplicas < 0 || c.NATSReplicas > 5 || c.NATSReplicas%2 == 0 && c.NATSReplicas != 0 {
		return fmt.Errorf("--nats-replicas %d: want 1, 3 or 5", c.NATSReplicas)
	}
	return nil
}

func (c RunConfig) validateSnapshots() error {
	switch {
	case c.ProfileStore == "" && c.ProfileKey == "":
	case c.ProfileStore == "":
		return errors.New("--profile-key: want --profile-store, too")
	case c.ProfileKey == "":
		return errors.New("--profile-store: want --profile-key FILE, too: nothing is stored in clear (leasehold profiles keygen FILE makes one)")
	default:
		if err := checkStore(c.ProfileStore); err != nil {
			return fmt.Errorf("--profile-store: %w", err)
		}
	}
	if c.SnapshotKeep < 0 {
		return fmt.Errorf("--profile-snapshots %d: want zero or more", c.SnapshotKeep)
	}
	if c.SnapshotMaxAge < 0 {
		return fmt.Errorf("--profile-snapshot-max-age %v: want zero or more", c.SnapshotMaxAge)
	}
	return nil
}

func (c RunConfig) validateEvidence() error {
	if err := checkStore(c.EvidenceStore); err != nil {
		return fmt.Errorf("--evidence-store: %w", err)
	}
	if c.EventsMax != 0 && c.EventsMax < leastEvents {
		return fmt.Errorf("--events-max-bytes: want 1MiB or more, or 0 for no bound")
	}
	if c.PictureEvery < 0 {
		return fmt.Errorf("--picture-interval %v: want zero or more", c.PictureEvery)
	}
	if c.EvidenceMaxAge < 0 {
		return fmt.Errorf("--evidence-max-age %v: want zero or more", c.EvidenceMaxAge)
	}
	return nil
}

// validateLeases checks what leases and their recovery depend on.
func (c RunConfig) validateLeases() error {
	if c.LauncherID != "" && !launcherID.MatchString(c.LauncherID) {
		return fmt.Errorf("--launcher-id %q: want 1 to 128 of A-Z a-z 0-9 . _ - and no dot in front", c.LauncherID)
	}
	if err := (lease.Timing{TTL: c.LeaseTTL}).Validate(); err != nil {
		return fmt.Errorf("--lease-ttl: %w", err)
	}
	if _, err := c.cautions(); err != nil {
		return err
	}
	switch {
	case c.PersonGrace < 0:
		return fmt.Errorf("--person-grace %v: want zero or more", c.PersonGrace)
	case c.ReconnectGrace < 0:
		return fmt.Errorf("--reconnect-grace %v: want zero or more", c.ReconnectGrace)
	case c.Cooldown < 0:
		return fmt.Errorf("--cooldown %v: want zero or more", c.Cooldown)
	case c.HomeTimeout < c.LeaseTTL:
		return fmt.Errorf("--home-timeout %v: want at least the --lease-ttl of %v", c.HomeTimeout, c.LeaseTTL)
	case c.OrphanTimeout < time.Second:
		return fmt.Errorf("--orphan-timeout %v: want 1s or more", c.OrphanTimeout)
	}
	return nil
}

// The least values that make sense.
const (
	leastEvents = 1 << 20
	leastHang   = 2 * time.Second
	leastMemory = 128 << 20
)

func (c RunConfig) validateBrowsers() error {
	switch {
	case c.HangTimeout < 0 || c.HangTimeout > 0 && c.HangTimeout < leastHang:
		return fmt.Errorf("--hang-timeout %v: want %v or more, or 0 for no bound", c.HangTimeout, leastHang)
	case c.BrowserMemory != 0 && c.BrowserMemory < leastMemory:
		return fmt.Errorf("--browser-memory: want 128MiB or more, or 0 for no bound")
	case c.BrowserWeight < 0 || c.BrowserWeight > 10000:
		return fmt.Errorf("--browser-cpu-weight %d: want 1 to 10000, or 0 for the usual", c.BrowserWeight)
	case c.MaxBrowsers < 0:
		return fmt.Errorf("--max-browsers %d: want 1 or more, or 0 for no limit", c.MaxBrowsers)
	case c.KeepWarmIdle < 0:
		return fmt.Errorf("--keep-warm-idle %v: want zero or more", c.KeepWarmIdle)
	case c.KeepWarmMax < 0:
		return fmt.Errorf("--keep-warm-max %d: want 1 or more, or 0 for none", c.KeepWarmMax)
	}
	return nil
}

// cautions reads --review-when and --gets.
func (c RunConfig) cautions() ([]table.Caution, error) {
	var all []table.Caution
	for _, s := range c.ReviewWhen {
		one, err := table.ParseCaution(s)
		if err != nil {
			return nil, fmt.Errorf("--review-when: %w", err)
		}
		all = append(all, one)
	}
	if c.GETs == "ask" {
		all = append(all, table.Caution{Fact: table.GetsAfterActionSince, Answer: table.Yes})
	}
	return all, nil
}
