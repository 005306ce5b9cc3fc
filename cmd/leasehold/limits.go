//go:build linux

package main

import (
	"fmt"
	"strings"

	"leasehold/internal/cgroup"
)

// browserGroups prepares control groups for browsers, if they are wanted and possible on this
// host. The text says how browsers are limited and, if there are no groups, why.
//
// They are also prepared if the settings have no limits, since a profile may have a limit of
// its own. But then the launcher does not move itself into another group for them.
func browserGroups(c RunConfig) (groups *cgroup.Tree, text string) {
	plan, err := planGroups()
	if err == nil && (!plan.Move || c.limitsBrowsers()) {
		groups, err = plan.Do()
	}
	return groups, limitsText(c, plan, err)
}

// limitsBrowsers tells whether the settings have limits that control groups enforce.
func (c RunConfig) limitsBrowsers() bool { return c.BrowserMemory > 0 || c.BrowserWeight > 0 }

// planGroups finds out how browsers can have control groups. It changes nothing.
func planGroups() (cgroup.Plan, error) {
	host, err := cgroup.Here()
	if err != nil {
		return cgroup.Plan{}, err
	}
	return host.Plan()
}

// limitsText says how browsers are limited. The plan and the error come from planGroups, or
// from carrying out the plan.
func limitsText(c RunConfig, plan cgroup.Plan, err error) string {
	how := fmt.Sprintf("control groups in %s (%s)", plan.Base, strings.Join(plan.Controllers, ", "))
	switch {
	case err == nil && plan.Move && !c.limitsBrowsers():
		how = "the launcher's own readings; control groups can be had, in " + plan.Base + ", with --browser-memory or --browser-cpu-weight"
	case err != nil:
		how = fmt.Sprintf("the launcher's own readings; no control groups: %v", err)
		if c.BrowserWeight > 0 {
			how += "; --browser-cpu-weight has no effect"
		}
	}
	memory := "no limit of memory"
	if c.BrowserMemory > 0 {
		memory = fmt.Sprintf("%s of memory each", c.BrowserMemory)
	}
	return memory + ", by " + how
}
