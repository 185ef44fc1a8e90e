-- Questions to a fleet of recordings, for DuckDB:
--   leaktrace export *.ltrace --to parquet -o fleet && duckdb < scripts/findings.sql

-- 1. What leaks, over all ranks: one row per cause, the number of the run's ranks that have it, and its spread.
SELECT f.run, f.kind, f.file, f.line, f.function, count(DISTINCT f.rank) AS ranks,
       (SELECT count(*) FROM 'fleet/*/*/recordings.parquet' r WHERE r.run = f.run) AS of_ranks,
       min(f.growth_bytes_per_step) AS least_per_step, max(f.growth_bytes_per_step) AS most_per_step,
       any_value(f.held_by) AS held_by
FROM 'fleet/*/*/findings.parquet' f
WHERE f.kind IN ('leak', 'growing')
GROUP BY ALL ORDER BY most_per_step DESC;

-- 2. Leaks without a verdict: lines whose blocks of most steps are still alive, long after those steps ended.
WITH runs AS (SELECT run, rank, max(step) AS steps FROM 'fleet/*/*/steps.parquet' GROUP BY ALL),
kept AS (
    SELECT run, rank, site, count(*) AS cohorts, any_value(steps) AS steps, min(alloc_step) AS oldest_step,
           median(live_bytes) AS bytes_per_step, sum(live_bytes) AS live_bytes
    FROM 'fleet/*/*/cohorts.parquet' JOIN runs USING (run, rank)
    WHERE alloc_step > greatest(5, 0.1 * steps) AND alloc_step <= steps - 5
    GROUP BY ALL
)
SELECT run, rank, file, line, function, layer, kept.cohorts, kept.oldest_step, kept.bytes_per_step, kept.live_bytes
FROM kept JOIN 'fleet/*/*/sites.parquet' USING (run, rank, site)
WHERE kept.cohorts >= 0.5 * (steps - 5 - greatest(5, floor(0.1 * steps)))
ORDER BY kept.live_bytes DESC;

-- 3. What a change brought in: how much each line grew, against the first run of the same program.
WITH lines AS (
    SELECT split_part(run, '-', 1) AS program, run, file, line, function, sum(growth_bytes) AS growth
    FROM 'fleet/*/*/sites.parquet' GROUP BY ALL
),
firsts AS (SELECT program, min(run) AS run FROM lines GROUP BY ALL),
base AS (SELECT lines.* FROM lines JOIN firsts USING (program, run))
SELECT l.run, l.file, l.line, l.function, coalesce(base.growth, 0) AS before, l.growth AS now
FROM lines l JOIN firsts ON firsts.program = l.program AND firsts.run <> l.run
LEFT JOIN base ON (base.program, base.file, base.line, base.function) = (l.program, l.file, l.line, l.function)
WHERE l.growth > coalesce(base.growth, 0)
ORDER BY now - before DESC;
