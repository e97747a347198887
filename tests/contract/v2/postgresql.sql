-- The tables of schema version 2; the rows are those of sqlite.sql.

CREATE TABLE meta (
    name VARCHAR COLLATE "C" NOT NULL,
    value VARCHAR COLLATE "C" NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE leader (
    owner VARCHAR COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    holder VARCHAR COLLATE "C" DEFAULT '' NOT NULL,
    endpoint VARCHAR COLLATE "C" DEFAULT '' NOT NULL,
    beat BIGINT DEFAULT 0 NOT NULL,
    released BOOLEAN DEFAULT false NOT NULL,
    successor VARCHAR COLLATE "C" DEFAULT '' NOT NULL,
    PRIMARY KEY (owner)
);

CREATE TABLE facts (
    owner VARCHAR COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    kind VARCHAR COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    blob BYTEA NOT NULL,
    epoch BIGINT NOT NULL,
    PRIMARY KEY (owner, revision)
);

CREATE TABLE jobs (
    owner VARCHAR COLLATE "C" NOT NULL,
    job_id BIGINT NOT NULL,
    state VARCHAR COLLATE "C" NOT NULL,
    "user" VARCHAR COLLATE "C" NOT NULL,
    partition VARCHAR COLLATE "C" NOT NULL,
    name VARCHAR COLLATE "C" NOT NULL,
    array_job_id BIGINT NOT NULL,
    submitted_us BIGINT NOT NULL,
    ended_us BIGINT NOT NULL,
    finished BOOLEAN NOT NULL,
    revision BIGINT NOT NULL,
    blob BYTEA NOT NULL,
    PRIMARY KEY (owner, job_id)
);

CREATE INDEX jobs_unfinished ON jobs (owner, job_id) WHERE NOT finished;

CREATE INDEX jobs_by_array ON jobs (owner, array_job_id) WHERE array_job_id != 0;

CREATE TABLE attempts (
    owner VARCHAR COLLATE "C" NOT NULL,
    job_id BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    "user" VARCHAR COLLATE "C" NOT NULL,
    account VARCHAR COLLATE "C" NOT NULL,
    partition VARCHAR COLLATE "C" NOT NULL,
    name VARCHAR COLLATE "C" NOT NULL,
    state VARCHAR COLLATE "C" NOT NULL,
    submitted_us BIGINT NOT NULL,
    started_us BIGINT NOT NULL,
    ended_us BIGINT NOT NULL,
    nodes BIGINT NOT NULL,
    cores BIGINT NOT NULL,
    exit_code INTEGER NOT NULL,
    signal INTEGER NOT NULL,
    blob BYTEA NOT NULL,
    PRIMARY KEY (owner, job_id, attempt)
);

CREATE INDEX attempts_by_user ON attempts (owner, "user", job_id, attempt);

CREATE TABLE steps (
    owner VARCHAR COLLATE "C" NOT NULL,
    job_id BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    step VARCHAR COLLATE "C" NOT NULL,
    name VARCHAR COLLATE "C" NOT NULL,
    state VARCHAR COLLATE "C" NOT NULL,
    started_us BIGINT NOT NULL,
    ended_us BIGINT NOT NULL,
    exit_code INTEGER NOT NULL,
    signal INTEGER NOT NULL,
    blob BYTEA NOT NULL,
    PRIMARY KEY (owner, job_id, attempt, step)
);

CREATE TABLE nodes (
    owner VARCHAR COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    name VARCHAR COLLATE "C" NOT NULL,
    state VARCHAR COLLATE "C" NOT NULL,
    blob BYTEA NOT NULL,
    PRIMARY KEY (owner, number)
);

CREATE TABLE settings (
    owner VARCHAR COLLATE "C" NOT NULL,
    name VARCHAR COLLATE "C" NOT NULL,
    blob BYTEA NOT NULL,
    PRIMARY KEY (owner, name)
);

CREATE TABLE requests (
    request_id BYTEA NOT NULL,
    owner VARCHAR COLLATE "C" NOT NULL,
    at_us BIGINT NOT NULL,
    answer BYTEA NOT NULL,
    PRIMARY KEY (request_id)
);

CREATE INDEX requests_by_age ON requests (owner, at_us);

CREATE TABLE blobs (
    owner VARCHAR COLLATE "C" NOT NULL,
    hash BYTEA NOT NULL,
    size BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (owner, hash)
);

CREATE INDEX blobs_by_age ON blobs (owner, at_us);
