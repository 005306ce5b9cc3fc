package deploy

// situation has series of metrics, a sample a minute for two hours, with which an alert
// fires at the end, and others with which it does not.
type situation struct{ fires, quiet []string }

// situations are by the name of the alert. Each bound is tried from both sides.
var situations = map[string]situation{
	"LeaseholdDown": {
		fires: []string{`up 0`, `up 1x117 0x2`},
		quiet: []string{`up 1`, `up 1x118 0x1`, `up 0x119 1`},
	},
	"LeaseholdLeaseStoreDown": {
		fires: []string{`leasehold_lease_store_down_seconds 61`},
		quiet: []string{`leasehold_lease_store_down_seconds 60`, `leasehold_lease_store_down_seconds 7000x119 0`},
	},
	"LeaseholdNotReady": {
		fires: []string{`leasehold_ready 0; leasehold_lease_store_up 1`},
		quiet: []string{`leasehold_ready 1; leasehold_lease_store_up 1`, `leasehold_ready 0; leasehold_lease_store_up 0`, `leasehold_ready 1x118 0x1; leasehold_lease_store_up 1`},
	},
	"LeaseholdStateNotBelieved": {
		fires: []string{
			`leasehold_distrusted_total{reason="state_not_authentic"} _x118 1x1`, // the first one ever
			`leasehold_distrusted_total{reason="state_not_authentic"} 4x100 5x1`,
		},
		quiet: []string{`leasehold_distrusted_total{reason="state_not_authentic"} 4`, `leasehold_distrusted_total{reason="state_rolled_back"} 4x20 5x1`},
	},
	"LeaseholdStoreForgot": {
		fires: []string{`leasehold_heals_total 0x100 1x1; leasehold_recalls_total 0`, `leasehold_heals_total 2; leasehold_recalls_total 3x100 4x1`},
		quiet: []string{`leasehold_heals_total 2; leasehold_recalls_total 3`, `leasehold_heals_total 0x20 1x1; leasehold_recalls_total 0`},
	},
	"LeaseholdHomeContested": {
		fires: []string{`leasehold_contests_total 0x100 1x1`},
		quiet: []string{`leasehold_contests_total 1`},
	},
	"LeaseholdRecoveryStuck": {
		fires: []string{`leasehold_profile_wait_seconds{state="quarantined"} 901`, `leasehold_profile_wait_seconds{state="suspected_stale"} 5000`, `leasehold_profile_wait_seconds{state="inspected"} 901`},
		quiet: []string{`leasehold_profile_wait_seconds{state="quarantined"} 900`, `leasehold_profile_wait_seconds{state="manual_review"} 5000`, `leasehold_profile_wait_seconds{state="quarantined"} 0x119 901`},
	},
	"LeaseholdReviewWaits": {
		fires: []string{`leasehold_profile_wait_seconds{state="manual_review"} 14401`},
		quiet: []string{`leasehold_profile_wait_seconds{state="manual_review"} 14400`, `leasehold_profile_wait_seconds{state="resume_pending"} 20000`},
	},
	"LeaseholdReviewsPileUp": {
		fires: []string{`leasehold_profiles{state="manual_review"} 6; leasehold_profiles{state="available"} 20`,
			`leasehold_profiles{state="manual_review",instance="a"} 4; leasehold_profiles{state="manual_review",instance="b"} 4; leasehold_profiles{state="held"} 20`,
			`leasehold_profiles{state="manual_review",instance="a"} 6; leasehold_lease_store_up{instance="a"} 0; leasehold_lease_store_down_seconds{instance="a"} 100; leasehold_lease_store_up{instance="b"} 0; leasehold_lease_store_down_seconds{instance="b"} 100`}, // NATS is away
		quiet: []string{
			`leasehold_profiles{state="manual_review"} 5; leasehold_profiles{state="available"} 5`,  // few
			`leasehold_profiles{state="manual_review"} 9; leasehold_profiles{state="available"} 81`, // of many
			`leasehold_profiles{state="manual_review"} 0x110 9x1; leasehold_profiles{state="available"} 9`,
			// a is cut off, and b counts the profiles of both
			`leasehold_profiles{state="manual_review",instance="a"} 4; leasehold_profiles{state="manual_review",instance="b"} 4; leasehold_lease_store_up{instance="a"} 0; leasehold_lease_store_down_seconds{instance="a"} 100; leasehold_lease_store_up{instance="b"} 1`,
		},
	},
	"LeaseholdAskWaits": {
		fires: []string{`leasehold_asks_waiting 1`},
		quiet: []string{`leasehold_asks_waiting 0`, `leasehold_asks_waiting 0x117 1x1`},
	},
	"LeaseholdResumeWaits": {
		fires: []string{`leasehold_profile_wait_seconds{state="resume_pending"} 3601`},
		quiet: []string{`leasehold_profile_wait_seconds{state="resume_pending"} 3600`, `leasehold_profile_wait_seconds{state="manual_review"} 9000`},
	},
	"LeaseholdEvidenceWaits": {
		fires: []string{`leasehold_evidence_spool_wait_seconds 901`},
		quiet: []string{`leasehold_evidence_spool_wait_seconds 900`},
	},
	"LeaseholdSnapshotsWait": {
		fires: []string{`leasehold_snapshot_wait_seconds 3601`},
		quiet: []string{`leasehold_snapshot_wait_seconds 3600`, `leasehold_snapshot_wait_seconds 9000x119 0`},
	},
	"LeaseholdEventsWait": {
		fires: []string{`leasehold_events_unpublished_wait_seconds 301; leasehold_lease_store_up 1`},
		quiet: []string{`leasehold_events_unpublished_wait_seconds 300; leasehold_lease_store_up 1`, `leasehold_events_unpublished_wait_seconds 9000; leasehold_lease_store_up 0`},
	},
	"LeaseholdDiskShort": {
		fires: []string{
			`leasehold_disk_free_bytes 399; leasehold_data_disk_free_bytes 9000; leasehold_disk_min_free_bytes 100`,
			`leasehold_disk_free_bytes 9000; leasehold_data_disk_free_bytes 399; leasehold_disk_min_free_bytes 100`,
		},
		quiet: []string{
			`leasehold_disk_free_bytes 400; leasehold_data_disk_free_bytes 400; leasehold_disk_min_free_bytes 100`,
			`leasehold_disk_free_bytes 9000x116 399x1; leasehold_data_disk_free_bytes 9000; leasehold_disk_min_free_bytes 100`,
		},
	},
	"LeaseholdHostFull": {
		fires: []string{`leasehold_queue 1; leasehold_browsers 8; leasehold_browsers_limit 8`},
		quiet: []string{`leasehold_queue 0; leasehold_browsers 8; leasehold_browsers_limit 8`, `leasehold_queue 1; leasehold_browsers 7; leasehold_browsers_limit 8`, `leasehold_queue 1; leasehold_browsers 900; leasehold_browsers_limit Inf`},
	},
	"LeaseholdBrowsersDoNotStart": {
		fires: []string{`leasehold_refusals_total{code="browser_start_failed"} _x110 1 2 3x1`, `leasehold_refusals_total{code="browser_start_failed"} 7x110 8 9 10 11x1`},
		quiet: []string{`leasehold_refusals_total{code="browser_start_failed"} _x110 1 2x1`, `leasehold_refusals_total{code="host_full"} 7x110 8 9 10 11x1`, `leasehold_refusals_total{code="browser_start_failed"} 7`},
	},
	"LeaseholdBrowsersKilled": {
		fires: []string{`leasehold_browser_closes_total{rung="sigkill"} 0+1x120`},
		quiet: []string{`leasehold_browser_closes_total{rung="cdp"} 0+1x120`, `leasehold_browser_closes_total{rung="sigkill"} 0x100 1 2 2x1`},
	},
	"LeaseholdBrowsersCrash": {
		fires: []string{`leasehold_browser_closes_total{rung="already_exited"} 0+1x120`},
		quiet: []string{`leasehold_browser_closes_total{rung="sigkill"} 0+1x120`, `leasehold_browser_closes_total{rung="already_exited"} 0x100 1 2 2x1`},
	},
	"LeaseholdNoticesFail": {
		fires: []string{`leasehold_notices_failing_seconds 901`},
		quiet: []string{`leasehold_notices_failing_seconds 900`},
	},
	"LeaseholdSiteFilesWrong": {
		fires: []string{`leasehold_site_files_wrong 1`},
		quiet: []string{`leasehold_site_files_wrong 0`, `leasehold_site_files_wrong 0x116 1x3`},
	},
	"LeaseholdLateWrites": {
		fires: []string{`leasehold_late_writes_total 0+1x120`},
		quiet: []string{`leasehold_late_writes_total 0x100 1 2 3x1`},
	},
	"LeaseholdProxiesNotRead": {
		fires: []string{`leasehold_proxies_up_to_date 0`},
		quiet: []string{`leasehold_proxies_up_to_date 1`, `leasehold_proxies_up_to_date 1x116 0x3`},
	},
	"LeaseholdDescriptorsShort": {
		fires: []string{`process_open_fds 850; process_max_fds 1000`},
		quiet: []string{`process_open_fds 790; process_max_fds 1000`},
	},
}
