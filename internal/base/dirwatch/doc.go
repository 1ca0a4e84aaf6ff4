// Package dirwatch reports that something in some directories may have changed. Where the kernel has no inotify
// instance left (a user has 128 unless fs.inotify.max_user_instances says otherwise), it reports a possible change
// every period, so that its user looks again by itself. Package inotify has the events that need more detail.
package dirwatch
