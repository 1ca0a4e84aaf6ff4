// Package routewatch runs a function whenever the addresses or the routes of this machine may have changed. The kernel
// announces the changes (rtnetlink(7)). It owns nothing but its subscription.
package routewatch
