"""Offloaded terms: their Parquet files, side indexes and manifests, and the reads from them.

Read in this order: `files` (the file system as a port), `manifest` (the files of a term and the proof that they are complete), `slices`
(one Parquet file), `slice_index` (its side index), `slice_reader` (reads parts of one slice), `cold_reads` (chooses files for a plan and
reads them). How the files are written is in `boki_spark.offload`.
"""
