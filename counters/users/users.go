// Package users counts users exactly: for each metric and local day the set of the ordinals of those who did it, as a roaring bitmap.
package users
