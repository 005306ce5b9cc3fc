package natsd

import "github.com/nats-io/nats-server/v2/server"

// These are the names on which the server's configuration and the lease store agree. A NATS
// server of the user's own has the same names in its configuration (deploy/nats-server.conf).
const (
	// SubscribersAPI is the API prefix under which launchers make, see and remove the
	// subscribers' copy of the event stream. Nothing answers there if the server has no account
	// for subscribers.
	SubscribersAPI = "$JS.leasehold_subscribers.API"
	// LaunchersAPI is the API prefix under which that copy restarts its feed.
	LaunchersAPI = "$JS.leasehold_launchers.API"
	// FeedConsumer is the consumer on the event stream that feeds the copy, and
	// FeedSubject is where it delivers.
	FeedConsumer, FeedSubject = "leasehold_subscribers", "$LEASEHOLD.feed"
)

// launchersAccount has the leases, the presences, the evidence and the event stream;
// subscribersAccount has a copy of the event stream.
const launchersAccount, subscribersAccount = "LAUNCHERS", "SUBSCRIBERS"

// accountsConfig keeps subscribers and launchers apart. Only this passes between them:
//
//   - The subscribers' account gets the events, as they are published and through the consumer
//     that feeds the copy of their stream. The launchers make that consumer.
//   - From the subscribers' account come the restart of that consumer, which has no argument
//     that could move it elsewhere, and the acknowledgements of its flow control. Users of the
//     account may not publish these; the server does.
//   - Launchers ask for the copy to be made, shown and removed.
//
// The copy is a mirror. A mirror has no subjects, so nothing that is published in the
// subscribers' account is stored in it, whoever publishes it.
const accountsConfig = `accounts {
  LAUNCHERS {
    jetstream: enabled
    exports: [
      {stream: "leasehold.recovery.*.*", accounts: [SUBSCRIBERS]}
      {stream: "leasehold.lease.*.*", accounts: [SUBSCRIBERS]}
      {stream: "leasehold.conflict.*", accounts: [SUBSCRIBERS]}
      {stream: "leasehold.late_write.*", accounts: [SUBSCRIBERS]}
      {stream: "leasehold.person.*.*", accounts: [SUBSCRIBERS]}
      {stream: "leasehold.account.*.*", accounts: [SUBSCRIBERS]}
      {stream: "leasehold.site.*", accounts: [SUBSCRIBERS]}
      {stream: "$LEASEHOLD.feed", accounts: [SUBSCRIBERS]}
      {service: "$JS.API.CONSUMER.RESET.leasehold_events.leasehold_subscribers", accounts: [SUBSCRIBERS]}
      {service: "$JS.FC.leasehold_events.leasehold_subscribers.*", accounts: [SUBSCRIBERS]}
    ]
    imports: [
      {service: {account: SUBSCRIBERS, subject: "$JS.API.STREAM.INFO.leasehold_events"}, to: "$JS.leasehold_subscribers.API.STREAM.INFO.leasehold_events"}
      {service: {account: SUBSCRIBERS, subject: "$JS.API.STREAM.CREATE.leasehold_events"}, to: "$JS.leasehold_subscribers.API.STREAM.CREATE.leasehold_events"}
      {service: {account: SUBSCRIBERS, subject: "$JS.API.STREAM.DELETE.leasehold_events"}, to: "$JS.leasehold_subscribers.API.STREAM.DELETE.leasehold_events"}
    ]
  }
  SUBSCRIBERS {
    jetstream: {max_streams: 1, max_consumers: 1000}
    exports: [
      {service: "$JS.API.STREAM.INFO.leasehold_events", accounts: [LAUNCHERS]}
      {service: "$JS.API.STREAM.CREATE.leasehold_events", accounts: [LAUNCHERS]}
      {service: "$JS.API.STREAM.DELETE.leasehold_events", accounts: [LAUNCHERS]}
    ]
    imports: [
      {stream: {account: LAUNCHERS, subject: "leasehold.recovery.*.*"}}
      {stream: {account: LAUNCHERS, subject: "leasehold.lease.*.*"}}
      {stream: {account: LAUNCHERS, subject: "leasehold.conflict.*"}}
      {stream: {account: LAUNCHERS, subject: "leasehold.late_write.*"}}
      {stream: {account: LAUNCHERS, subject: "leasehold.person.*.*"}}
      {stream: {account: LAUNCHERS, subject: "leasehold.account.*.*"}}
      {stream: {account: LAUNCHERS, subject: "leasehold.site.*"}}
      {stream: {account: LAUNCHERS, subject: "$LEASEHOLD.feed"}}
      {service: {account: LAUNCHERS, subject: "$JS.API.CONSUMER.RESET.leasehold_events.leasehold_subscribers"}, to: "$JS.leasehold_launchers.API.CONSUMER.RESET.leasehold_events.leasehold_subscribers"}
      {service: {account: LAUNCHERS, subject: "$JS.FC.leasehold_events.leasehold_subscribers.*"}}
    ]
  }
}`

// readOnly returns the permissions of subscribers: what clients need to read the copy of
// the event stream, and nothing that changes it.
func readOnly() *server.Permissions {
	return &server.Permissions{
		Publish: &server.SubjectPermission{
			Allow: []string{
				"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.leasehold_events",
				"$JS.API.STREAM.MSG.GET.leasehold_events", "$JS.API.DIRECT.GET.leasehold_events", "$JS.API.DIRECT.GET.leasehold_events.>",
				"$JS.API.CONSUMER.*.leasehold_events", "$JS.API.CONSUMER.*.leasehold_events.>",
				"$JS.API.CONSUMER.DURABLE.CREATE.leasehold_events.>", "$JS.API.CONSUMER.MSG.NEXT.leasehold_events.>",
				"$JS.ACK.leasehold_events.>", "$JS.FC.leasehold_events.>",
			},
			Deny: []string{"$JS.FC.leasehold_events.leasehold_subscribers.>"},
		},
		Subscribe: &server.SubjectPermission{Allow: []string{"leasehold.>", "_INBOX.>"}},
	}
}
