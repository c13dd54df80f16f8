// Package export is HAND OUT: the day's events and numbers to ClickHouse, Parquet, CSV and XLSX, with reconcile.
//
// It is not built yet: only the name is taken.
package export
