package api

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// History has samples of what the node used over the last day, oldest first. While a client follows it, each new sample
// comes in a History of its own.
type History struct {
	metav1.TypeMeta `json:",inline"`
	// IntervalSeconds is the time between two samples. A longer one is a gap.
	IntervalSeconds int `json:"intervalSeconds"`
	// Fields names the values of a sample. cpu is in CPUs, memory and disk in bytes, diskRead and diskWritten in bytes
	// each second. The stalls are shares of the time, from 0 to 1.
	Fields []string `json:"fields"`
	// Times are the times of the samples, in Unix seconds.
	Times []int64 `json:"times"`
	// Samples has the values of each sample. -1 is unknown.
	Samples [][]float32 `json:"samples"`
}

// Changes names answers that have changed: images, starts (timelines) and topology. A client asks for them again.
type Changes struct {
	metav1.TypeMeta `json:",inline"`
	Of              []string `json:"of"`
}
