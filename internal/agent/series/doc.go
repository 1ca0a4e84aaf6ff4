// Package series registers what the agent tells at /metrics under the kubelet's
// names. It owns nothing: the numbers are those of the parts.
package series
