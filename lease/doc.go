// Package lease has the rules of who owns a browser profile:
//
//   - Record, the lease of one profile, with its Token and its State, and the
//     transitions between states, which are pure functions of a record and a time.
//   - Presence, the proof that a launcher is alive, on which its leases depend.
//   - Keeper, which renews the presence of this launcher, and Observer, which decides
//     when that of another one went silent.
//   - Holding, which keeps the record of a lease up to date, and Fence, which every
//     write of its holder has to pass.
//
// The package knows no network. A Store keeps the records somewhere and changes them by
// compare-and-swap only; the one in use is lease/natskv.
//
// What is promised: tokens only grow; a transition that is not in the table is refused;
// a holder whose renewals stop is stopped by its own clock, before anybody else may
// act. What is not promised: that a record which was read is still current. Only a
// successful Swap proves that.
//
// These are all transitions. Whoever states one has checked that it may: the rules do not know who
// calls them. Any launcher may suspect a lease and quarantine it, each on its own clock and by one
// compare-and-swap; only the home, whose disk has the profile, inspects.
//
//	| from | fact | to | stated by |
//	| --- | --- | --- | --- |
//	| no record | created | available | the launcher whose disk has the profile |
//	| no record | granted | held | the launcher whose disk has the profile |
//	| available | granted | held | the launcher whose disk has the profile |
//	| resume_pending | granted | held | the launcher whose disk has the profile |
//	| held | granted | held | the launcher that holds the lease |
//	| held | run_ended | held | the launcher that holds the lease |
//	| held | run_lost | held | the launcher that holds the lease |
//	| held | released | available | the launcher that holds the lease |
//	| held | put_back | resume_pending | the launcher that holds the lease |
//	| held | suspected | suspected_stale | any launcher |
//	| suspected_stale | reasserted | held | the launcher that holds the lease |
//	| suspected_stale | fenced | quarantined | any launcher |
//	| quarantined | examined | inspected | the launcher whose disk has the profile |
//	| quarantined | abandoned | manual_review | any launcher |
//	| inspected | found_safe | available | the launcher whose disk has the profile |
//	| inspected | found_resume | resume_pending | the launcher whose disk has the profile |
//	| inspected | found_unclear | manual_review | the launcher whose disk has the profile |
//	| inspected | abandoned | manual_review | any launcher |
//	| manual_review | approved | available | a person |
//	| manual_review | kept | manual_review | a person |
//	| no record | taken_by_hand | held | a person |
//	| available | taken_by_hand | held | a person |
//	| manual_review | taken_by_hand | held | a person |
//	| held | handed_back | manual_review | a person |
//	| available | moved | available | any launcher |
//	| available | moved_by_hand | available | a person |
//	| resume_pending | moved_by_hand | manual_review | a person |
//	| manual_review | moved_by_hand | manual_review | a person |
//	| available | snapshot_restored | available | a person |
//	| manual_review | snapshot_restored | manual_review | a person |
//	| available | remade | available | the launcher whose disk has the profile |
//	| any, or no record | restored | available | the launcher whose disk has the profile |
//	| any, or no record | restored | resume_pending | the launcher whose disk has the profile |
//	| any, or no record | restored | manual_review | the launcher whose disk has the profile |
//	| any, or no record | forgotten | quarantined | the launcher whose disk has the profile |
//	| any, or no record | recalled | quarantined | any launcher |
//	| any, or no record | contested | quarantined | any launcher |
package lease
