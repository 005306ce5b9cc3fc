package chrome

import (
	"context"
	"fmt"
)

// storageArgument is the argument of the process in which Chrome keeps the local storage of all
// pages.
const storageArgument = "--utility-sub-type=storage.mojom.StorageService"

// AwaitStored returns when everything that ended renderers left in local storage is on the
// disk. Chrome writes it when the last page of a site is gone, and otherwise up to five seconds
// after the page did. It does so in a separate process, which it ends together with itself,
// even if that process has not written yet: on a busy host what was stored last is lost.
func (b *Browser) AwaitStored(ctx context.Context) error {
	// The zygote hears first that a renderer has ended, then the browser, then the storage.
	chain := []int{b.identity.PID}
	found, err := b.helpers(zygoteArgument, storageArgument)
	if err != nil {
		return err
	}
	for _, p := range found {
		chain = append(chain, p.PID)
	}
	if err := awaitRest(ctx, chain...); err != nil {
		return fmt.Errorf("chrome pid %d and its storage: %w", b.identity.PID, err)
	}
	return nil
}
