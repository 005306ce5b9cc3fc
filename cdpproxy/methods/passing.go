package methods

// effects are the names of methods of one domain, by what they do: see Effect.
type effects struct{ reads, sets, stays, acts string }

// passing are the names of the methods that pass as they are, by domain. Before adding one,
// think about six questions: can it name a file of the host, can it open a page that pages cannot
// open, can it change how the browser reaches the network, does what it names reach the wire,
// does it reveal the host, and what is its effect? (A trace that is read as a stream names the
// browser's arguments and the profile's files. Performance tools need traces, and who knows an
// address has no right there.) If it is not known whether Chrome undoes what a method sets, it stays.
var passing = map[string]effects{
	"Accessibility": {
		reads: `
			disable enable getAXNodeAndAncestors getChildAXNodes getFullAXTree getPartialAXTree getRootAXNode
			queryAXTree`,
	},
	"Ads": {reads: `getAdMetrics getAdScripts`},
	"Animation": {
		reads: `disable enable getCurrentTime getPlaybackRate releaseAnimations resolveAnimation`,
		sets:  `setPlaybackRate`,
		acts:  `seekAnimations setPaused setTiming`,
	},
	"Audits": {reads: `checkFormsIssues disable enable getEncodedResponse`},
	"Autofill": {
		reads: `disable enable`,
		stays: `setAddresses`,
		acts:  `trigger`,
	},
	"BackgroundService": {
		reads: `startObserving stopObserving`,
		stays: `setRecording`,
		acts:  `clearEvents`,
	},
	"BluetoothEmulation": {
		stays: `
			addCharacteristic addDescriptor addService disable enable removeCharacteristic removeDescriptor
			removeService setSimulatedCentralState simulateAdvertisement
			simulateCharacteristicOperationResponse simulateDescriptorOperationResponse
			simulateGATTDisconnection simulateGATTOperationResponse simulatePreconnectedPeripheral`,
	},
	"Browser": {
		reads: `
			getGlobalPrivacyControl getHistogram getHistograms getVersion getWindowBounds getWindowForTarget`,
		// The bounds of a window are not among what stays, although a later tab of the window has them:
		// Playwright sets them for each page, and no browser would be handed on after it.
		sets:  `grantPermissions resetPermissions setPermission setWindowBounds`,
		stays: `addMockCamera setContentsSize setDockTile setGlobalPrivacyControl`,
		acts:  `cancelDownload`,
	},
	"CSS": {
		reads: `
			collectClassNames disable enable getAnimatedStylesForNode getBackgroundColors
			getComputedStyleForNode getEnvironmentVariables getInlineStylesForNode getLayersForNode
			getLocationForSelector getLonghandProperties getMatchedStylesForNode getMediaQueries
			getPlatformFontsForNode getStyleSheetText resolveValues startRuleUsageTracking
			stopRuleUsageTracking takeComputedStyleUpdates takeCoverageDelta trackComputedStyleUpdates
			trackComputedStyleUpdatesForNode`,
		sets: `forcePseudoState forceStartingStyle setLocalFontsEnabled`,
		acts: `
			addRule createStyleSheet setContainerQueryConditionText setContainerQueryText
			setEffectivePropertyValueForNode setKeyframeKey setMediaText setNavigationText
			setPropertyRulePropertyName setRuleSelector setScopeText setStyleSheetText setStyleTexts
			setSupportsText`,
	},
	"CacheStorage": {
		reads: `requestCacheNames requestCachedResponse requestEntries`,
		acts:  `deleteCache deleteEntry`,
	},
	"Console":            {reads: `clearMessages disable enable`},
	"CrashReportContext": {reads: `getEntries`},
	"DOM": {
		reads: `
			collectClassNamesFromSubtree describeNode disable discardSearchResults enable getAnchorElement
			getAttributes getBoxModel getContainerForNode getContentQuads getDetachedDomNodes getDocument
			getElementByRelation getFileInfo getFlattenedDocument getFrameOwner getImplicitAnchorCandidates
			getNodeForLocation getNodeStackTraces getNodesForSubtreeByStyle getOuterHTML
			getQueryingDescendantsForContainer getRelayoutBoundary getSearchResults getTopLayerElements
			hideHighlight markUndoableState performSearch pushNodeByPathToFrontend
			pushNodesByBackendIdsToFrontend querySelector querySelectorAll requestChildNodes requestNode
			resolveNode setInspectedNode setNodeStackTracesEnabled`,
		sets: `highlightNode highlightRect`,
		acts: `
			clearTextMarkers copyTo focus forceShowInterest forceShowPopover moveTo redo removeAttribute
			removeNode scrollIntoViewIfNeeded setAttributeValue setAttributesAsText setNodeName setNodeValue
			setOuterHTML setTextMarker undo`,
	},
	"DOMDebugger": {
		reads: `
			getEventListeners removeDOMBreakpoint removeEventListenerBreakpoint removeInstrumentationBreakpoint
			removeXHRBreakpoint`,
		sets: `
			setBreakOnCSPViolation setDOMBreakpoint setEventListenerBreakpoint setInstrumentationBreakpoint
			setXHRBreakpoint`,
	},
	"DOMSnapshot": {reads: `captureSnapshot disable enable getSnapshot`},
	"DOMStorage": {
		reads: `disable enable getDOMStorageItems`,
		acts:  `clear removeDOMStorageItem setDOMStorageItem`,
	},
	"Debugger": {
		reads: `
			disable disassembleWasmModule enable evaluateOnCallFrame getPossibleBreakpoints getScriptSource
			getStackTrace getWasmBytecode nextWasmDisassemblyChunk removeBreakpoint resume searchInContent
			setAsyncCallStackDepth setBlackboxExecutionContexts setBlackboxPatterns setBlackboxedRanges
			setSkipAllPauses`,
		sets: `
			continueToLocation pause pauseOnAsyncCall setBreakpoint setBreakpointByUrl
			setBreakpointOnFunctionCall setBreakpointsActive setInstrumentationBreakpoint setPauseOnExceptions
			stepInto stepOut stepOver`,
		acts: `restartFrame setReturnValue setScriptSource setVariableValue`,
	},
	"DeviceOrientation":  {sets: `clearDeviceOrientationOverride setDeviceOrientationOverride`},
	"DigitalCredentials": {stays: `setVirtualWalletBehavior`},
	"Emulation": {
		reads: `
			canEmulate getOverriddenSensorInformation getScreenInfos setEmulatedMedia setFocusEmulationEnabled`,
		sets: `
			clearDeviceMetricsOverride clearDevicePostureOverride clearDisplayFeaturesOverride
			clearGeolocationOverride clearIdleOverride resetPageScaleFactor setAutoDarkModeOverride
			setAutomationOverride setCPUPerformanceOverride setCPUThrottlingRate setDataSaverOverride
			setDefaultBackgroundColorOverride setDeviceMetricsOverride setDevicePostureOverride
			setDisabledImageTypes setDisplayFeaturesOverride setDocumentCookieDisabled
			setEmitTouchEventsForMouse setEmulatedOSTextScale setEmulatedVisionDeficiency
			setGeolocationOverride setHardwareConcurrencyOverride setIdleOverride
			setNavigatorOverrides setPageScaleFactor setPressureSourceOverrideEnabled setPressureStateOverride
			setSafeAreaInsetsOverride setScriptExecutionDisabled setScrollbarsHidden setSensorOverrideEnabled
			setSensorOverrideReadings setSmallViewportHeightDifferenceOverride setTimezoneOverride
			setTouchEmulationEnabled setVirtualKeyboardGeometryOverride
			setVirtualTimePolicy setVisibleSize`,
		stays: `addScreen removeScreen setPrimaryScreen updateScreen`,
	},
	"EventBreakpoints": {
		reads: `disable removeInstrumentationBreakpoint`,
		sets:  `setInstrumentationBreakpoint`,
	},
	"FedCm": {
		reads: `disable`,
		sets:  `enable`,
		acts:  `clickDialogButton dismissDialog openUrl resetCooldown selectAccount`,
	},
	"Fetch": {
		reads: `disable getResponseBody`,
		sets:  `enable`,
		acts:  `failRequest takeResponseBodyAsStream`,
	},
	"FileSystem": {reads: `getDirectory`},
	"FindInPage": {
		reads: `stop`,
		acts:  `findFirst findNext findPrev`,
	},
	"HeadlessExperimental": {
		reads: `disable enable`,
		acts:  `beginFrame`,
	},
	"HeapProfiler": {
		reads: `
			addInspectedHeapObject collectGarbage disable enable getHeapObjectId getObjectByHeapObjectId
			getSamplingProfile startSampling startTrackingHeapObjects stopSampling stopTrackingHeapObjects
			takeHeapSnapshot`,
	},
	"IO": {reads: `close read resolveBlob`},
	"IndexedDB": {
		reads: `disable enable getMetadata requestData requestDatabase requestDatabaseNames`,
		acts:  `clearObjectStore deleteDatabase deleteObjectStoreEntries`,
	},
	"Input": {
		sets: `setIgnoreInputEvents setInterceptDrags`,
		acts: `
			cancelDragging dispatchKeyEvent dispatchMouseEvent dispatchTouchEvent emulateTouchFromMouseEvent
			imeSetComposition insertText`,
	},
	"Inspector": {reads: `disable enable`},
	"LayerTree": {
		reads: `
			compositingReasons disable enable loadSnapshot makeSnapshot profileSnapshot releaseSnapshot
			replaySnapshot snapshotCommandLog`,
	},
	"Log":   {reads: `clear disable enable startViolationsReport stopViolationsReport`},
	"Media": {reads: `disable enable`},
	"Memory": {
		reads: `
			getAllTimeSamplingProfile getBrowserSamplingProfile getDOMCounters getDOMCountersForLeakDetection
			getSamplingProfile startSampling stopSampling`,
		stays: `setPressureNotificationsSuppressed`,
		acts:  `forciblyPurgeJavaScriptMemory prepareForLeakDetection simulatePressureNotification`,
	},
	"Network": {
		reads: `
			canClearBrowserCache canClearBrowserCookies canEmulateNetworkConditions configureDurableMessages
			disable enable enableDeviceBoundSessions enableReportingApi fetchSchemefulSite getAllCookies
			getCertificate getCookies getRequestPostData getResponseBody getSecurityIsolationStatus
			searchInResponseBody setAttachDebugStack streamResourceContent`,
		sets: `
			emulateNetworkConditions emulateNetworkConditionsByRule setBlockedURLs setBypassServiceWorker
			setCacheDisabled`,
		stays: `overrideNetworkState setCookieControls`,
		acts: `
			clearBrowserCache clearBrowserCookies deleteCookies deleteDeviceBoundSession replayXHR
			`,
	},
	"Overlay": {
		reads: `
			disable enable getGridHighlightObjectsForTest getHighlightObjectForTest
			getSourceOrderHighlightObjectForTest hideHighlight`,
		sets: `
			highlightFrame highlightNode highlightQuad highlightRect highlightSourceOrder setInspectMode
			setPausedInDebuggerMessage setShowAdHighlights setShowContainerQueryOverlays setShowDebugBorders
			setShowDisplayCutout setShowFPSCounter setShowFlexOverlays setShowGridOverlays setShowHinge
			setShowHitTestBorders setShowInspectedElementAnchor setShowIsolatedElements
			setShowLayoutShiftRegions setShowPaintRects setShowScrollBottleneckRects setShowScrollSnapOverlays
			setShowViewportSizeOnResize setShowWebVitals setShowWindowControlsOverlay`,
	},
	"Page": {
		reads: `
			captureScreenshot captureSnapshot clearCompilationCache createIsolatedWorld disable enable
			getAdScriptAncestry getAnnotatedPageContent getAppId getAppManifest getFrameTree
			getInstallabilityErrors getLayoutMetrics getManifestIcons getNavigationHistory getOriginTrials
			getPermissionsPolicyState getResourceContent getResourceTree getSiblingSubApps getSubApps
			printToPDF produceCompilationCache removeScriptToEvaluateOnLoad removeScriptToEvaluateOnNewDocument
			screencastFrameAck searchInResource setFontFamilies setLifecycleEventsEnabled startScreencast
			stopScreenRecording stopScreencast`,
		sets: `
			addCompilationCache addScriptToEvaluateOnLoad addScriptToEvaluateOnNewDocument
			clearDeviceMetricsOverride clearDeviceOrientationOverride clearGeolocationOverride
			setAdBlockingEnabled setBypassCSP setDeviceMetricsOverride setDeviceOrientationOverride
			setFontSizes setGeolocationOverride setInterceptFileChooserDialog setPrerenderingAllowed
			setRPHRegistrationMode setSPCTransactionMode setTouchEmulationEnabled waitForDebugger`,
		acts: `
			bringToFront crash deleteCookie generateTestReport handleJavaScriptDialog navigateToHistoryEntry
			reload resetNavigationHistory setDocumentContent setWebLifecycleState stopLoading`,
	},
	"Performance":         {reads: `disable enable getMetrics setTimeDomain`},
	"PerformanceTimeline": {reads: `enable`},
	"Preload":             {reads: `disable enable`},
	"Profiler": {
		reads: `
			disable enable getBestEffortCoverage setSamplingInterval start startPreciseCoverage stop
			stopPreciseCoverage takePreciseCoverage`,
	},
	"Runtime": {
		reads: `
			addBinding awaitPromise callFunctionOn compileScript disable discardConsoleEntries enable evaluate
			getExceptionDetails getHeapUsage getIsolateId getProperties globalLexicalScopeNames queryObjects
			releaseObject releaseObjectGroup removeBinding runIfWaitingForDebugger runScript
			setAsyncCallStackDepth setCustomObjectFormatterEnabled setMaxCallStackSizeToCapture`,
		acts: `terminateExecution`,
	},
	"Schema": {reads: `getDomains`},
	"Security": {
		reads: `disable enable`,
		stays: `handleCertificateError setIgnoreCertificateErrors setOverrideCertificateErrors`,
	},
	"ServiceWorker": {
		reads: `disable enable`,
		stays: `setForceUpdateOnPageLoad`,
		acts: `
			deliverPushMessage dispatchPeriodicSyncEvent dispatchSyncEvent skipWaiting startWorker
			stopAllWorkers stopWorker unregister updateRegistration`,
	},
	"SmartCardEmulation": {
		stays: `
			disable enable reportBeginTransactionResult reportConnectResult reportDataResult reportError
			reportEstablishContextResult reportGetStatusChangeResult reportListReadersResult reportPlainResult
			reportReleaseContextResult reportStatusResult`,
	},
	"Storage": {
		reads: `
			getCookies getPrivateVerificationTokens getPrivateVerificationTokensIssuerConfigs getStorageKey
			getStorageKeyForFrame getTrustTokens getUsageAndQuota setPrivateVerificationTokensTracking
			setStorageBucketTracking trackCacheStorageForOrigin trackCacheStorageForStorageKey
			trackIndexedDBForOrigin trackIndexedDBForStorageKey untrackCacheStorageForOrigin
			untrackCacheStorageForStorageKey untrackIndexedDBForOrigin untrackIndexedDBForStorageKey`,
		stays: `overrideQuotaForOrigin`,
		acts: `
			clearCookies clearDataForOrigin clearDataForStorageKey clearPrivateVerificationTokens
			clearTrustTokens deletePrivateVerificationToken deleteStorageBucket runBounceTrackingMitigations
			`,
	},
	"SystemInfo": {reads: `getFeatureState getProcessInfo`},
	"Target": {
		reads: `
			attachToBrowserTarget autoAttachRelated detachFromTarget getBrowserContexts getTargetInfo
			getTargets setDiscoverTargets`,
		acts: `activateTarget disposeBrowserContext`,
	},
	"Tracing":  {reads: `end getCategories getTrackEventDescriptor recordClockSyncMarker requestMemoryDump`},
	"WebAudio": {reads: `disable enable getRealtimeData`},
	"WebAuthn": {
		reads: `disable getCredential getCredentials`,
		sets: `
			addCredential addVirtualAuthenticator clearCredentials enable removeCredential
			removeVirtualAuthenticator setAutomaticPresenceSimulation setCredentialProperties
			setResponseOverrideBits setUserVerified`,
	},
	"WebMCP": {
		reads: `disable enable`,
		acts:  `cancelInvocation invokeTool`,
	},
}
