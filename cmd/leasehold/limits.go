package main

import (
	"fmt"
	"strings"

	"leasehold/internal/cgroup"
)

// browserGroups prepares control groups for browsers, where they are asked for and
// can be had; said is how browsers are limited, and why no better.
//
// A profile may have a limit of its own on a host without one: where the launcher has
// its leaf already, the groups are prepared for that, too. It moves itself only for
// limits that it was given.
func browserGroups(c RunConfig) (groups *cgroup.Tree, said string) {
	plan, err := planGroups()
	if err == nil && (!plan.Move || c.limitsBrowsers()) {
		groups, err = plan.Do()
	}
	return groups, limitsText(c, plan, err)
}

func (c RunConfig) limitsBrowsers() bool { return c.BrowserMemory > 0 || c.BrowserWeight > 0 }

// planGroups finds out how browsers could have control groups; it changes nothing.
func planGroups() (cgroup.Plan, error) {
	host, err := cgroup.Here()
	if err != nil {
		return cgroup.Plan{}, err
	}
	return host.Plan()
}

// limitsText says how browsers are limited.
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
