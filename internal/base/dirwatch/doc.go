// Package dirwatch reports that something in some directories may have changed. The kernel may have no inotify instance
// left: a user has 128 by default (fs.inotify.max_user_instances). Then the watcher reports a possible change every
// period, so that its user reads the directories again. Package inotify has the events that need more detail.
package dirwatch
