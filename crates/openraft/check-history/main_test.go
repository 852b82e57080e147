package main

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func judge(calls ...event) porcupine.CheckResult {
	history := []porcupine.Operation{}
	for client, call := range calls {
		if !call.Known {
			call.ReturnedNs = 1 << 62
		}
		call.Key = "k"
		history = append(history, porcupine.Operation{ClientId: client, Input: call, Call: call.CalledNs, Return: call.ReturnedNs})
	}
	return porcupine.CheckOperationsTimeout(register, history, time.Minute)
}

func put(value uint64, called, returned int64) event {
	return event{Op: "put", Value: value, Known: true, CalledNs: called, ReturnedNs: returned}
}

func get(value uint64, called, returned int64) event {
	return event{Op: "get", Value: value, Known: true, CalledNs: called, ReturnedNs: returned}
}

func swap(expected, value uint64, made bool, called, returned int64) event {
	return event{Op: "swap", Expected: expected, Value: value, Made: made, Known: true, CalledNs: called, ReturnedNs: returned}
}

func TestVerdicts(t *testing.T) {
	unknown := put(2, 3, 4)
	unknown.Known = false
	for name, one := range map[string]struct {
		verdict porcupine.CheckResult
		calls   []event
	}{
		"reads see writes":                {porcupine.Ok, []event{put(1, 1, 2), get(1, 3, 4)}},
		"a lost write":                    {porcupine.Illegal, []event{put(1, 1, 2), get(0, 3, 4)}},
		"a stale read":                    {porcupine.Illegal, []event{put(1, 1, 2), put(2, 3, 4), get(1, 5, 6)}},
		"reads during a write":            {porcupine.Ok, []event{put(1, 1, 9), get(0, 2, 3), get(1, 4, 5)}},
		"reads that go back":              {porcupine.Illegal, []event{put(1, 1, 9), get(1, 2, 3), get(0, 4, 5)}},
		"an unknown write, seen late":     {porcupine.Ok, []event{put(1, 1, 2), unknown, get(1, 5, 6), get(2, 7, 8)}},
		"an unknown write, never seen":    {porcupine.Ok, []event{put(1, 1, 2), unknown, get(1, 5, 6)}},
		"two swaps of the same number":    {porcupine.Illegal, []event{swap(0, 1, true, 1, 2), swap(0, 2, true, 3, 4)}},
		"a swap that was refused":         {porcupine.Ok, []event{swap(0, 1, true, 1, 2), swap(0, 2, false, 3, 4), get(1, 5, 6)}},
		"a swap that was wrongly refused": {porcupine.Illegal, []event{put(1, 1, 2), swap(1, 2, false, 3, 4)}},
	} {
		if found := judge(one.calls...); found != one.verdict {
			t.Errorf("%s: %s; expected %s", name, found, one.verdict)
		}
	}
}
