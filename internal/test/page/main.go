// Command page evaluates an expression in the page of a session, and prints its value as JSON:
//
//	page CDP-URL EXPRESSION
//
// It is the worker of scripts/test-package.sh. It ends without a close handshake, as a worker whose
// network fails, so that the session waits for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gobwas/ws"

	"leasehold/internal/test/rawcdp"
)

func main() {
	value, err := evaluate(context.Background(), os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
	fmt.Println(value)
}

func evaluate(ctx context.Context, at, expression string) (string, error) {
	c, err := rawcdp.Dial(ctx, ws.Dialer{}, at)
	if err != nil {
		return "", err
	}
	defer c.Drop()
	var targets struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	if err := c.Call(ctx, "", "Target.getTargets", nil, &targets); err != nil {
		return "", err
	}
	for _, target := range targets.TargetInfos {
		if target.Type != "page" {
			continue
		}
		var session struct{ SessionID string }
		if err := c.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session); err != nil {
			return "", err
		}
		var answer struct {
			Result           struct{ Value string }
			ExceptionDetails *struct{ Text string }
		}
		params := map[string]any{"expression": "JSON.stringify(" + expression + ")", "returnByValue": true}
		if err := c.Call(ctx, session.SessionID, "Runtime.evaluate", params, &answer); err != nil {
			return "", err
		}
		if answer.ExceptionDetails != nil {
			return "", errors.New(answer.ExceptionDetails.Text)
		}
		return answer.Result.Value, nil
	}
	return "", fmt.Errorf("no page among %d targets", len(targets.TargetInfos))
}
