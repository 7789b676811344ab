"""What the S3 adapters share: the address of a bucket, requests with retries, and what errors mean."""
