package answer

import "net/http"

// Archive writes a tar stream as an answer. It begins the answer with the first byte, so that an earlier error can
// still become the answer.
type Archive struct {
	w     http.ResponseWriter
	begun bool
}

// NewArchive returns an archive that answers to w.
func NewArchive(w http.ResponseWriter) *Archive { return &Archive{w: w} }

// Write implements io.Writer.
func (a *Archive) Write(p []byte) (int, error) {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "application/x-tar")
		a.w.WriteHeader(http.StatusOK)
	}
	return a.w.Write(p)
}

// End returns err if it can still become the answer. If the answer has begun, it reports err in a trailer and returns
// nil.
func (a *Archive) End(err error) error {
	if err == nil || !a.begun {
		return err
	}
	SetErrorTrailer(a.w, err)
	return nil
}
