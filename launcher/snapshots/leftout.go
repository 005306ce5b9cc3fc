package snapshots

import (
	"path"
	"slices"
	"strings"
)

// These parts of a user-data-dir are left out of snapshots: what Chrome makes again by itself,
// and what belongs to the running browser rather than to the account. The names are those at
// the top of the directory, or at the top of a profile inside it (Default, Profile 1): deeper
// down, names are chosen by sites and extensions.
//
// What is not named here is kept. TestWhatTheAccountHasSurvives checks both lists against a
// real Chromium.
var (
	leftOutOfTop = []string{
		// Of the running process.
		"SingletonLock", "SingletonCookie", "SingletonSocket", "DevToolsActivePort", "lockfile", "Crashpad", "Crash Reports",
		"DeferredBrowserMetrics", "CrashpadMetrics-active.pma", "CrashpadMetrics.pma", "chrome_debug.log",
		// Caches of compiled shaders.
		"GPUCache", "ShaderCache", "GrShaderCache", "GraphiteDawnCache", "GPUPersistentCache",
		// What Chrome downloads for itself; it is the same for every profile.
		"component_crx_cache", "extensions_crx_cache", "Safe Browsing", "OptimizationHints", "optimization_guide_model_store",
		"OptGuideOnDeviceModel", "OptGuideOnDeviceClassifierModel", "SSLErrorAssistant", "CertificateRevocation", "Subresource Filter",
		"PKIMetadata", "FirstPartySetsPreloaded", "TrustTokenKeyCommitments", "hyphen-data", "ZxcvbnData", "Crowd Deny",
		"MEIPreload", "SafetyTips", "FileTypePolicies", "OriginTrials", "ActorSafetyLists", "AmountExtractionHeuristicRegexes",
		// Marks: a copy of a clone is not a clone itself, and no copy is the directory.
		".leasehold-clone", ".leasehold-mark", ".leasehold-mark.next",
	}
	leftOutOfProfile = []string{
		// Caches of fetched content, and of what was compiled from it.
		"Cache", "Code Cache", "Media Cache", "Application Cache", "Shared Dictionary",
		"GPUCache", "DawnCache", "DawnGraphiteCache", "DawnWebGPUCache", "ShaderCache", "GPUPersistentCache",
		// What Chrome downloads for itself.
		"optimization_guide_hint_cache_store", "optimization_guide_model_metadata_store",
	}
)

// leftOut tells whether the snapshot leaves out a path of a profile, with everything below it.
func leftOut(p string) bool {
	dir, name := path.Split(p)
	dir = strings.TrimSuffix(dir, "/")
	switch {
	case dir == "":
		return slices.Contains(leftOutOfTop, name) || strings.HasPrefix(name, "BrowserMetrics")
	case !strings.Contains(dir, "/"):
		return slices.Contains(leftOutOfProfile, name)
	}
	return false
}
