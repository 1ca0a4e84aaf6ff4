// Package series registers the metrics that the agent serves at /metrics under the kubelet's names. It owns nothing:
// the parts count.
package series
