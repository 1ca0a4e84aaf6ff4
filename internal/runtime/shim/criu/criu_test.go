package criu

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The error of a checkpoint has the reasons that CRIU has logged.
func TestErrorQuotesTheLog(t *testing.T) {
	criuLog := filepath.Join(t.TempDir(), "dump.log")
	cause := errors.New("checkpoint: exit status 1")
	if err := Error(criuLog, nil); err != nil {
		t.Errorf("no error: %v", err)
	}
	const short = "checkpoint: exit status 1"
	if err := Error(criuLog, cause); err == nil || err.Error() != short {
		t.Errorf("%v, want %s", err, short)
	}
	log := "(00.000001) Version: 3.17.1\n" +
		"(00.012345) Error (criu/sk-inet.c:188): inet: Connected TCP socket, consider using --tcp-established " +
		"option.\n" +
		"(00.012400)     57: Error (criu/cr-restore.c:1): pie: \n" +
		"(00.013000) Error (criu/cr-dump.c:1791): Dumping FAILED.\n"
	if err := os.WriteFile(criuLog, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	const long = short + ": CRIU says: inet: Connected TCP socket, consider using --tcp-established option.; pie:; " +
		"Dumping FAILED."
	if err := Error(criuLog, cause); err == nil || err.Error() != long {
		t.Errorf("%v, want %s", err, long)
	}
}
