// Command check-history judges whether the history of a trial (examples/kv) is linearizable: exit code 0 if it is, 1 if it is not,
// 2 if there is no history or no answer in time.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// A call, as crates/openraft/examples/kv/clients.rs writes it.
type event struct {
	Client     int    `json:"client"`
	Op         string `json:"op"`
	Key        string `json:"key"`
	Value      uint64 `json:"value"`
	Expected   uint64 `json:"expected"`
	Made       bool   `json:"made"`
	Known      bool   `json:"known"`
	CalledNs   int64  `json:"called_ns"`
	ReturnedNs int64  `json:"returned_ns"`
}

// Each key is a register of its own; 0 stands for a key that is not there.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, operation := range history {
			key := operation.Input.(event).Key
			byKey[key] = append(byKey[key], operation)
		}
		parts := [][]porcupine.Operation{}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		number, call := state.(uint64), input.(event)
		switch call.Op {
		case "get":
			return call.Value == number, number
		case "put":
			return true, call.Value
		default:
			met := number == call.Expected
			if met {
				number = call.Value
			}
			return !call.Known || met == call.Made, number
		}
	},
	DescribeOperation: func(input, _ any) string {
		call := input.(event)
		return fmt.Sprintf("%s %s %d (expected %d, made %v, known %v)", call.Op, call.Key, call.Value, call.Expected, call.Made, call.Known)
	},
}

func read(path string) ([]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	history := []porcupine.Operation{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var call event
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			return nil, fmt.Errorf("line %d of %s is not a call: %w", len(history)+1, path, err)
		}
		returned := call.ReturnedNs
		if !call.Known {
			// It may take effect at any later time, and so also never.
			returned = math.MaxInt64
		}
		history = append(history, porcupine.Operation{ClientId: call.Client, Input: call, Call: call.CalledNs, Output: nil, Return: returned})
	}
	return history, lines.Err()
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: check-history HISTORY")
		os.Exit(2)
	}
	history, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	result, info := porcupine.CheckOperationsVerbose(register, history, 60*time.Second)
	fmt.Printf("%d calls: %s\n", len(history), result)
	switch result {
	case porcupine.Ok:
	case porcupine.Illegal:
		picture := os.Args[1] + ".html"
		if porcupine.VisualizePath(register, info, picture) == nil {
			fmt.Println("drawn in", picture)
		}
		os.Exit(1)
	default:
		os.Exit(2)
	}
}
