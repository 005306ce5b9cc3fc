package main

import "slices"

// The tests of the lease store, by what they are about. Those on a cluster are too slow for
// this.
var (
	answers   = []Catcher{by("lease/natskv", "TestJudge")}
	swaps     = []Catcher{by("lease/natskv", "TestSwapAndGet", "TestDeletedRecord", "TestForeignValueIsNoRecord", "TestADeletedRecordDoesNotComeBack", "TestPresence")}
	settled   = []Catcher{by("lease/natskv", "TestUnansweredSwapIsSettled", "TestALostRequestIsNotWhatAnotherWrote", "TestUnansweredSwapThatWasDropped", "TestUnknownSwapKeepsItsEvent", "TestGivenUpWriteNeverComesLate", "TestTooManyUnsettledWrites")}
	published = []Catcher{by("lease/natskv", "TestPositions", "TestEventsOfTransitions", "TestOutboxOfACrashedLauncher", "TestLatePublisherAddsNothing", "TestReconnectPublishesWhatOthersDidNot", "TestLostEventStream", "TestFlushSaysWhatIsNotPublished")}
	lost      = []Catcher{by("lease/natskv", "TestCompare", "TestALossIsCountedOnce", "TestAWatchTellsTheAgeOfTheStore"), by("lease/natskv", "TestWatchGetsOver")}
	watched   = []Catcher{by("lease/natskv", "TestWatch", "TestWatchGetsOver")}
)

// ofStore are the mutants of the lease store.
var ofStore = slices.Concat(
	in("lease/natskv/cas.go", answers,
		change{"a write beside another that is in flight counts as lost", `case api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:`, `case api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence, api.ErrorCode == codeInFlight:`},
		change{"an earlier try that is in flight counts as a refusal", `case api.ErrorCode == codeInFlight, api.ErrorCode == codeTwice:`, `case api.ErrorCode == codeInFlight:`},
		change{"a server without a leader counts as a refusal", `case api.Code >= 500:`, `case api.Code > 503:`},
		change{"a write without an answer counts as not sent", "\treturn unknown\n}\n\n// wait returns", "\treturn notSent\n}\n\n// wait returns"},
		change{"a deleted stream counts as a refusal", `case api.ErrorCode == codeFull, api.ErrorCode == jetstream.JSErrCodeStreamNotFound:`, `case api.ErrorCode == codeFull:`},
	),
	in("lease/natskv/cas.go", slices.Concat(swaps, settled),
		change{"a write is not conditional", `jetstream.WithExpectLastSequencePerSubject(expected), `, ``},
		change{"a write without an answer is not asked for", "\t\t\tw.ambiguous = true\n", ""},
		change{"a write that is given up may come late", `if err != nil && w.ambiguous {`, `if err == nil && w.ambiguous {`},
		change{"its own write counts as another's", "\t\tcase w.isIn(m):\n", "\t\tcase w.isIn(m) && false:\n"},
		change{"another's write counts as its own", `return ok && nonce == w.nonce`, `return ok`},
		change{"the write before counts as the next", `getRequest{Seq: w.expected + 1, NextFor:`, `getRequest{Seq: w.expected, NextFor:`},
		change{"a write that was dropped since counts as not stored", "\tif w.expected == 0 || errors.Is(err, errNoMessage) {\n\t\treturn message{}, errUntraceable\n\t}\n", ""},
		change{"nothing is written over a deleted record", `case m.deleted() && w.create:`, `case false:`},
		change{"a deleted record is written over by its holder", `case m.deleted() && w.create:`, `case m.deleted():`},
		change{"a later write that came first is not told", "\treturn 0, true, &movedError{now: &m}\n", "\treturn 0, true, &movedError{now: &message{}}\n"},
	),
	in("lease/natskv/settle.go", settled,
		change{"a settled write that was stored keeps its events", "\t\tif w.bucket.stream == t.s.leases.stream {\n\t\t\tt.s.pub.sweep()\n\t\t}\n", ""},
		change{"a first write that is given up leaves a record", `if w.create {`, `if false {`},
		change{"a settler tries once", "\treturn false\n}\n\n// replacement returns", "\treturn true\n}\n\n// replacement returns"},
		change{"the settler takes any number of writes", `return n >= maxUnsettled`, `return n > maxUnsettled`},
		change{"two unsettled writes of one key are one", `p.bucket.stream == w.bucket.stream && p.key == w.key && p.expected == w.expected`, `p.bucket.stream == w.bucket.stream && p.expected == w.expected`},
	),
	in("lease/natskv/swap.go", slices.Concat(swaps, published),
		change{"an outbox keeps what was published", "\tnext.Outbox = s.pub.unpublished(profile, next.Outbox)\n", ""},
		change{"events wait for the next start", "\t\ts.pub.enqueue(profile, next.Outbox)\n", ""},
		change{"a record takes another's key", "\tif prev.Revision != 0 && prev.Record.ProfileID != profile {\n\t\treturn lease.Entry{}, fmt.Errorf(\"lease of %s: cannot replace the record of %s\", profile, prev.Record.ProfileID)\n\t}\n", ""},
	),
	in("lease/natskv/swap.go", settled,
		change{"swaps go on while too many writes are unsettled", `if s.settler.full() {`, `if false {`},
	),
	in("lease/natskv/bucket.go", slices.Concat(swaps, answers, []Catcher{by("lease/natskv", "FuzzDecode", "TestAValueIsOfItsKey")}),
		change{"a record of another profile is believed", ` || lease.Key(r.ProfileID) != key {`, ` {`},
		change{"what no launcher wrote is believed", `json.Unmarshal(data, &r) != nil || r.Nonce == "" ||`, `json.Unmarshal(data, &r) != nil ||`},
		change{"a presence of another launcher is believed", ` || launcherKey(p.LauncherID) != key {`, ` {`},
	),
	in("lease/natskv/read.go", swaps,
		change{"a record below a deletion comes back", "\t\t\tif older.deleted() {\n\t\t\t\tbelow = nil\n\t\t\t} else if", "\t\t\tif older.deleted() {\n\t\t\t\t_ = below\n\t\t\t} else if"},
		change{"a deleted record is read", "\tcase m.deleted():\n\t\treturn message{}, errNoMessage\n", ""},
	),
	in("lease/natskv/publisher.go", published,
		change{"a healed record's events count as published", "\tif p.token != q.token {\n\t\treturn p.token > q.token\n\t}\n", ""},
		change{"an event is published twice", "\t\tif !positionOf(e).after(last.position) {\n\t\t\treturn nil\n\t\t}\n", ""},
		change{"an event is published whatever came last", `jetstream.WithExpectLastSequenceForSubject(last, subjects), `, ``},
		change{"a lost event stream counts as full", "\tclear(p.tails)\n", ""},
		change{"the outboxes of a crashed launcher stay", `sweeping: true, idle:`, `sweeping: false, idle:`},
		change{"a reconnect leaves the outboxes of others", "\t\t\tp.sweep()\n\t\tcase <-retry:", "\t\tcase <-retry:"},
		change{"a message id is used again after a loss", `fmt.Sprintf("%s.%d.%d", e.ProfileID, e.Token, e.Sequence)`, `fmt.Sprintf("%s.%d", e.ProfileID, e.Sequence)`},
		change{"an outbox is emptied before its events are published", "\tpublished := p.tails[profile].position\n", "\tpublished := p.tails[profile].position\n\tif q := p.queue[profile]; len(q) > 0 {\n\t\tpublished = positionOf(q[len(q)-1])\n\t}\n"},
	),
	in("lease/natskv/stream.go", lost,
		change{"a stream that was made again is the same", "\tcase !st.created.Equal(info.Created):\n\t\tlost = true\n", ""},
		change{"a stream that went back is the same", `case last < seen && info.Config.Replicas <= 1:`, `case false:`},
		change{"a new leader counts as a loss", `case last < seen && info.Config.Replicas <= 1:`, `case last < seen:`},
		change{"a replicated stream is doubted for ever", `case last < seen && now.Sub(st.lowerSince) < doubtTime:`, `case last < seen:`},
		change{"a loss is counted again and again", "\t\tst.highest = last\n", ""},
		change{"a stream that caught up is still doubted", `st.created, st.lowerSince, st.highest = info.Created, time.Time{}, max(st.highest, last)`, `st.created, st.highest = info.Created, max(st.highest, last)`},
	),
	in("lease/natskv/watch.go", slices.Concat(watched, lost[:1]),
		change{"every store is old", `Age: max(info.TimeStamp.Sub(info.Created), 0)`, `Age: 24 * time.Hour`},
		change{"every store is young", `Age: max(info.TimeStamp.Sub(info.Created), 0)`, `Age: 0`},
		change{"a step back is not told", `Stepped: losses != w.losses`, `Stepped: false`},
		change{"a record that was lost is not told", "\t\tw.see(lease.Sight{Entry: lease.Entry{Record: lease.Record{ProfileID: profile}}})\n\t\tdelete(w.shown, profile)\n", "\t\tdelete(w.shown, profile)\n"},
		change{"a watch does not notice that its bucket went back", `case w.s.leases.lossCount() != w.losses:`, `case false:`},
		change{"a watch that lost its consumer waits", `case w.at < polled && w.at == at:`, `case false:`},
	),
)
