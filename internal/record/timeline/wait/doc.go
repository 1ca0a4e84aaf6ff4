// Package wait records what the containers of pods wait for. The timeline shows a wait at once. The status of the pod
// shows a wait that lasts.
package wait
